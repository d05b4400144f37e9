-- Optional: tells headgate of DDL at once, also when no row follows it, and tells consumers of what changes rows without
-- a trace in the stream. Needs a superuser, once per database. Run it again to bring it up to date.
-- Remove it with: drop schema headgate_ddl cascade;
--
-- Every note is part of the transaction that alters things, so it stands in the stream where that takes effect.
-- `headgate.ddl` carries what was altered as it is then; `headgate.gap` asks for new snapshots of tables.
-- All functions run as whoever issues the DDL, with that role's rights, and look up nothing but in pg_catalog.

begin;

drop event trigger if exists headgate_ddl;  -- of earlier versions
drop function if exists headgate_ddl();
drop schema if exists headgate_ddl cascade;
create schema headgate_ddl;
grant usage on schema headgate_ddl to public;  -- triggers on partitions belong to the tables' owners

-- Asks for new snapshots of these relations, and of the partitioned tables that they are parts of.
create function headgate_ddl.tell_gap_v2(relations oid[]) returns void language plpgsql
  set search_path = pg_catalog, pg_temp as $$
declare
  tables jsonb;
begin
  select jsonb_agg(distinct jsonb_build_array(n.nspname, c.relname)) into tables
  from unnest(relations) u (oid)
  cross join lateral (select u.oid union select p.relid from pg_partition_ancestors(u.oid) p (relid)) r (oid)
  join pg_class c on c.oid = r.oid and c.relkind in ('r', 'p') and c.relpersistence <> 't'
  join pg_namespace n on n.oid = c.relnamespace;
  if tables is not null then
    perform pg_logical_emit_message(true, 'headgate.gap',
      jsonb_build_object('reason', 'rewrite', 'tables', tables)::text);
  end if;
end
$$;

-- A partition that is truncated: the stream has the truncation of tables that are published themselves alone.
create function headgate_ddl.truncated_v2() returns trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  perform headgate_ddl.tell_gap_v2(array[tg_relid])
  from pg_class where oid = tg_relid and relispartition and exists (select from pg_publication where pubviaroot);
  return null;
end
$$;

-- Each partition gets a trigger whose name has its parent's oid: when the partition is dropped, nothing else tells it.
create function headgate_ddl.watch_partitions_v2(relations oid[]) returns void language plpgsql
  set search_path = pg_catalog, pg_temp as $$
declare
  leaf record;
begin
  for leaf in
    select p.relid, format('headgate_%s', p.parentrelid::oid) as name
    from unnest(relations) u (oid) cross join lateral pg_partition_tree(u.oid) p
    join pg_class c on c.oid = p.relid
    where p.isleaf and p.parentrelid is not null and c.relkind = 'r' and c.relpersistence = 'p'
      and not exists (select from pg_trigger t
        where t.tgrelid = p.relid and t.tgname = format('headgate_%s', p.parentrelid::oid))
  loop
    begin
      execute format('create trigger %I after truncate on %s execute function headgate_ddl.truncated_v2()',
                     leaf.name, leaf.relid);
    exception when others then  -- never in the way of somebody's DDL
      raise warning 'headgate does not watch %: %', leaf.relid, sqlerrm;
    end;
  end loop;
end
$$;

-- The altered relations, the composite types as they are now, and a gap where rows have become others unseen.
-- What a command did cannot always be told: its text is of help only where it stands alone.
create function headgate_ddl.altered_v2() returns event_trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
declare
  command text := current_query();
  relations oid[];
  types oid[];
  described jsonb;
begin
  select coalesce(array_agg(distinct c.objid) filter (where c.classid = 'pg_class'::regclass), '{}'),
         coalesce(array_agg(distinct c.objid) filter (where c.classid = 'pg_type'::regclass), '{}')
    into relations, types
  from pg_event_trigger_ddl_commands() c where not coalesce(c.schema_name = 'pg_temp', false);
  select types || coalesce(array_agg(c.reltype), '{}') into types
  from pg_class c where c.oid = any (relations) and c.relkind = 'c';
  select array_agg(c.oid) into relations from pg_class c where c.oid = any (relations) and c.relkind in ('r', 'p');
  if relations is null and types = '{}' then
    return;
  end if;
  select jsonb_agg(jsonb_build_object(
           'oid', t.oid::int8, 'name', t.typname, 'kind', 'composite', 'element', 0, 'base', 0,
           'delimiter', t.typdelim, 'attributes', coalesce(f.attributes, '[]')))
    into described
  from pg_type t
  left join lateral (
    select jsonb_agg(jsonb_build_object('name', a.attname, 'type_id', a.atttypid::int8) order by a.attnum) as attributes
    from pg_attribute a where a.attrelid = t.typrelid and a.attnum > 0 and not a.attisdropped
  ) f on true
  where t.oid = any (types) and t.typtype = 'c';
  perform pg_logical_emit_message(true, 'headgate.ddl', jsonb_build_object('tag', tg_tag,
    'relations', coalesce(to_jsonb(relations::int8[]), '[]'), 'types', coalesce(described, '[]'))::text);

  if relations is not null then
    perform headgate_ddl.watch_partitions_v2(relations);
  end if;
  if tg_tag = 'ALTER TABLE' and (command ~* '\m(attach|detach)\M' or command !~* '^\s*alter\s') then
    -- A partition came or went with its rows.
    perform headgate_ddl.tell_gap_v2(array_agg(c.oid)) from pg_class c
    where c.oid = any (relations) and (c.relkind = 'p' or c.relispartition) having count(*) > 0;
  elsif tg_tag = 'ALTER TYPE'
    and not (command ~* '^\s*alter\s+type\s.*\sadd\s+value\s' and command !~* '\m(rename|attribute)\M') then
    -- A label of an enum or an attribute of a composite may have another name: whatever is made of it reads otherwise.
    with recursive touched (oid) as (
      select u.oid from unnest(types) u (oid)
      union
      select made.oid
      from touched
      join pg_type made on made.typelem = touched.oid or made.typtype = 'd' and made.typbasetype = touched.oid
        or made.typtype = 'c' and exists (select from pg_attribute a
             where a.attrelid = made.typrelid and a.atttypid = touched.oid and not a.attisdropped)
    )
    select coalesce(array_agg(distinct a.attrelid), '{}') into relations
    from pg_attribute a
    where a.attnum > 0 and not a.attisdropped and a.atttypid in (select oid from touched);
    perform headgate_ddl.tell_gap_v2(relations);
  end if;
end
$$;

-- PostgreSQL writes a table anew: ALTER COLUMN TYPE ... USING, a volatile default, SET LOGGED and UNLOGGED.
create function headgate_ddl.rewritten_v2() returns event_trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  perform headgate_ddl.tell_gap_v2(array[pg_event_trigger_table_rewrite_oid()]);
end
$$;

-- A partition that is dropped takes its rows along.
create function headgate_ddl.dropped_v2() returns event_trigger language plpgsql
  set search_path = pg_catalog, pg_temp as $$
begin
  perform headgate_ddl.tell_gap_v2(array_agg(distinct substring(d.address_names[3] from '^headgate_(\d+)$')::oid))
  from pg_event_trigger_dropped_objects() d
  where d.object_type = 'trigger' and d.address_names[3] ~ '^headgate_\d+$'
  having count(*) > 0;
end
$$;

create event trigger headgate_ddl on ddl_command_end
  when tag in ('ALTER TABLE', 'CREATE TABLE', 'CREATE TABLE AS', 'SELECT INTO', 'ALTER TYPE')
  execute function headgate_ddl.altered_v2();
create event trigger headgate_rewrite on table_rewrite execute function headgate_ddl.rewritten_v2();
create event trigger headgate_drop on sql_drop
  when tag in ('DROP TABLE', 'DROP SCHEMA', 'DROP OWNED') execute function headgate_ddl.dropped_v2();

select headgate_ddl.watch_partitions_v2(array_agg(oid)) from pg_catalog.pg_class where relkind = 'p' having count(*) > 0;

commit;
