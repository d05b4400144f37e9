-- A model of the broker that ours replaces, with its faults: text ids made of clock and chance, an unlogged table of
-- what is unread, a LIMIT without an order, session locks, retention by age and by names in the session's time zone.
-- Tests run the same story on both, to show that they can fail.

create schema original;
set search_path = original;

create table config (key text primary key, value text);
insert into config values ('partition_interval', '30 minutes'), ('future', '3 hours'), ('retention', '60 minutes');

-- The clock of the host, which tests can set.
create function clock() returns timestamptz language sql volatile as $$
  select clock_timestamp() + coalesce(nullif(current_setting('original.clock_offset', true), ''), '0 s')::interval
$$;

create function create_event_id(ts timestamptz, rand bigint) returns text language sql immutable as $$
  select substr('pm' || lpad(to_hex((extract(epoch from ts) * 1000000)::bigint), 13, '0') || rpad(to_hex(rand), 9, '0'), 1, 24)
$$;
create function new_id() returns text language sql volatile as $$
  select original.create_event_id(original.clock(), (random() * 268435448)::bigint)
$$;

create table events (
  id text collate "C" not null primary key default new_id(), topic text not null, payload jsonb not null,
  subscription_id text
) partition by range (id);
create unlogged table unread_events (event_id text collate "C" primary key);
create table subscription_groups (id text primary key, last_read_event_id text collate "C" default create_event_id(now(), 0));
create table subscriptions (
  id text primary key default 'su' || gen_random_uuid(), group_id text not null, conditions_sql text default 'TRUE',
  params jsonb default '{}', identity bigint, last_active_at timestamptz default clock_timestamp(), expiry_interval interval,
  unique (identity)
);
create index on subscriptions using gin (params) with (fastupdate = off);
create table subscription_events (id text collate "C", group_id text, event_id text collate "C", subscription_id text)
  with (autovacuum_enabled = off);
create index on subscription_events (group_id, id);
create materialized view subscription_cond_sqls as select distinct conditions_sql from subscriptions;
create unique index on subscription_cond_sqls (conditions_sql);

create function mark_unread() returns trigger language plpgsql as $$
begin
  insert into original.unread_events select id from fresh;
  return null;
end $$;
create trigger mark_unread after insert on events referencing new table as fresh
  for each statement execute function mark_unread();

create function maintain(at_time timestamptz default now()) returns void language plpgsql as $$
declare
  size interval := (select value::interval from original.config where key = 'partition_interval');
  start timestamptz := date_bin(size, at_time, 'epoch');
  name text;
begin
  for n in 0 .. 7 loop
    name := 'events_' || to_char(start + n * size, 'YYYYMMDDHH24MI');
    begin
      execute format('create table original.%I partition of original.events for values from (%L) to (%L)', name,
        original.create_event_id(start + n * size, 0), original.create_event_id(start + (n + 1) * size, 0));
    exception when duplicate_table or invalid_object_definition then
      null;
    end;
  end loop;
  for name in
    select c.relname from pg_inherits as i join pg_class as c on c.oid = i.inhrelid
    where i.inhparent = 'original.events'::regclass
      and c.relname < 'events_' || to_char(start - (select value::interval from original.config where key = 'retention'),
        'YYYYMMDDHH24MI')
  loop
    execute format('drop table original.%I', name);
  end loop;
end $$;
select maintain();

-- An error in the text, and nothing else, is found here: no row is looked at.
create function check_conditions() returns trigger language plpgsql as $$
begin
  execute format('select from (select null::text as id, null::text as topic, null::jsonb as payload'
    ' limit 0) as e, (select null::jsonb as params) as s where ' || new.conditions_sql);
  insert into original.subscription_groups (id) values (new.group_id) on conflict do nothing;
  new.identity := hashtext(new.group_id || '/' || new.conditions_sql || '/' || jsonb_hash(new.params)::text)::bigint;
  return new;
end $$;
create trigger check_conditions before insert on subscriptions for each row execute function check_conditions();
create function refresh() returns trigger language plpgsql as $$
begin
  refresh materialized view concurrently original.subscription_cond_sqls;
  return null;
end $$;
create trigger refresh after insert or update or delete on subscriptions for each statement execute function refresh();

create function assert_subscription(gid text, cond text, with_params jsonb, expiry interval) returns text
language sql as $$
  insert into original.subscriptions (group_id, conditions_sql, params, expiry_interval) values (gid, cond, with_params, expiry)
  on conflict (identity) do update set last_active_at = clock_timestamp() returning id
$$;

create function poll_for_events(chunk int default 10000) returns int language plpgsql as $$
declare
  found_ids text[];
  compiled text;
  started timestamptz;
  written int;
begin
  if not pg_try_advisory_xact_lock(hashtext('original.poll')) then
    return 0;
  end if;
  with taken as (
    select event_id from original.unread_events where event_id < original.create_event_id(original.clock(), 0)
    limit chunk for update skip locked
  ), gone as (delete from original.unread_events as u using taken where u.event_id = taken.event_id returning u.event_id)
  select array_agg(event_id) into found_ids from gone;
  select string_agg(format('(' || conditions_sql || ') and s.conditions_sql = %L', conditions_sql), ' or ') into compiled
    from original.subscription_cond_sqls;
  started := original.clock();
  execute 'insert into original.subscription_events (id, group_id, event_id, subscription_id)
    select original.create_event_id($1, 268435456 + row_number() over (order by e.id)), s.group_id, e.id, s.id
    from original.events as e join original.subscriptions as s
      on s.id = e.subscription_id or e.subscription_id is null and (' || coalesce(compiled, 'false') || ')
    where e.id = any ($2)' using started, found_ids;
  get diagnostics written = row_count;
  return written;
end $$;

create function read_next_events(gid text, from_cursor text default null, chunk int default 1000, peek bool default false)
returns table (id text, topic text, payload jsonb, subscription_ids text[], next_cursor text) language plpgsql as $$
#variable_conflict use_column
begin
  if not pg_try_advisory_lock(hashtext('original.read.' || gid)) and not peek then
    return;
  end if;
  return query
  with page as materialized (
    select d.id, d.event_id, d.subscription_id
    from original.subscription_events as d join original.subscriptions as s on s.id = d.subscription_id
    where d.group_id = gid and d.id < original.create_event_id(original.clock(), 0)
      and d.id > coalesce(from_cursor, (select last_read_event_id from original.subscription_groups as g where g.id = gid))
    limit chunk
  )
  select e.id, e.topic, e.payload, p.subs, (select max(page.id) from page)
  from (select event_id, array_agg(subscription_id) as subs from page group by event_id) as p
  join original.events as e on e.id = p.event_id;
end $$;

create function set_group_cursor(gid text, new_cursor text, release_lock bool) returns void language plpgsql as $$
begin
  update original.subscription_groups set last_read_event_id = new_cursor where id = gid;
  if release_lock then
    perform pg_advisory_unlock(hashtext('original.read.' || gid));
  end if;
end $$;

create function replay(gid text, sid text, after_event text) returns setof text language sql as $$
  select event_id from original.subscription_events
  where group_id = gid and subscription_id = sid and event_id > after_event order by event_id
$$;
