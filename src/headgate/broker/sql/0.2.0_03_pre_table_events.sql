-- Changes of a table as events, published by triggers in the transaction that makes them. For programs that have
-- nothing but SQL; reading the log of PostgreSQL costs the writers less and sees more.
--
--   select push_table_mutations('public.users');            -- topics public.users.insert, .update and .delete
--   select stop_table_mutations_push('public.users');

create function create_topic(schema_name text, table_name text, kind text) returns text
language sql immutable set search_path from current as $$
  select lower(schema_name || '.' || table_name || '.' || kind)
$$;

-- What of a differs from b; a null counts as absent. Null if nothing does.
create function jsonb_diff(a jsonb, b jsonb) returns jsonb language sql immutable set search_path from current as $$
  select jsonb_object_agg(n.key, n.value)
  from jsonb_each(a) as n
  where nullif(n.value, 'null') is distinct from nullif(b -> n.key, 'null')
$$;

-- Replace it to choose what of a row goes into events: `serialised` is the payload, and without `emit` there is none.
create function serialise_record_for_event(of_table oid, op text, row_of anyelement,
  out serialised jsonb, out emit boolean)
language sql stable set search_path from current as $$
  select jsonb_strip_nulls(to_jsonb(row_of)), true
$$;

-- One statement for all rows of a statement. Rows that an update has left as they were are no events; old and new ones
-- are paired in the order in which PostgreSQL hands them over, which is the same for both.
create function push_table_event() returns trigger
language plpgsql security definer set search_path from current as $$
declare
  of_topic text := create_topic(tg_table_schema, tg_table_name, tg_op);
begin
  if tg_op = 'INSERT' then
    insert into events (topic, payload)
    select of_topic, s.serialised from new_rows as n
    cross join lateral serialise_record_for_event(tg_relid, tg_op, n) as s where s.emit;
  elsif tg_op = 'DELETE' then
    insert into events (topic, payload)
    select of_topic, s.serialised from old_rows as o
    cross join lateral serialise_record_for_event(tg_relid, tg_op, o) as s where s.emit;
  else
    insert into events (topic, payload, metadata)
    select of_topic, d.changes, jsonb_build_object('old', o.serialised)
    from (select row_number() over () as ord, s.* from new_rows as r
      cross join lateral serialise_record_for_event(tg_relid, tg_op, r) as s) as n
    join (select row_number() over () as ord, s.* from old_rows as r
      cross join lateral serialise_record_for_event(tg_relid, tg_op, r) as s) as o on o.ord = n.ord
    cross join lateral (select coalesce(jsonb_diff(n.serialised, o.serialised), '{}') || coalesce((
      select jsonb_object_agg(gone.key, null::text) from jsonb_object_keys(o.serialised) as gone(key)
      where not n.serialised ? gone.key), '{}') as changes) as d
    where n.emit and d.changes <> '{}'
    order by n.ord;
  end if;
  return null;
end $$;

-- It publishes with the rights of its owner, for whoever writes to the table; so not everybody may set it on one.
revoke execute on function push_table_event() from public;

create function push_table_mutations(of_table regclass, insert boolean default true, delete boolean default true,
  update boolean default true)
returns void language plpgsql set search_path from current as $$
begin
  perform stop_table_mutations_push(of_table);
  if insert then
    execute format('create trigger post_insert_event after insert on %s referencing new table as new_rows'
      ' for each statement execute function push_table_event()', of_table);
  end if;
  if delete then
    execute format('create trigger post_delete_event after delete on %s referencing old table as old_rows'
      ' for each statement execute function push_table_event()', of_table);
  end if;
  if update then
    execute format('create trigger post_update_event after update on %s referencing old table as old_rows'
      ' new table as new_rows for each statement execute function push_table_event()', of_table);
  end if;
end $$;

create function stop_table_mutations_push(of_table regclass) returns void
language plpgsql set search_path from current as $$
declare
  trigger_name text;
begin
  foreach trigger_name in array array['post_insert_event', 'post_delete_event', 'post_update_event'] loop
    execute format('drop trigger if exists %I on %s', trigger_name, of_table);
  end loop;
end $$;
