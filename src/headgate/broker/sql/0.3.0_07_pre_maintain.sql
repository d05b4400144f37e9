-- Maintenance that others do not notice: it holds the dispatcher's lock only to begin a new partition of positions, it
-- looks at what has changed since the last time, and does a bounded part of it; the next call goes on.

-- Up to where nothing waits for a group, seen at the cursor `cursor_pos`: a group that was moved back behind it has to be
-- looked at again. `waits`: at the next position, something does.
create table group_floors (
  gno int primary key,
  pos bigint not null,
  cursor_pos bigint not null,
  waits boolean not null
) with (fillfactor = 50);

create view floors as
select g.gno, greatest(c.pos, g.overrun_to, f.pos) as pos, c.pos as cursor_pos,
  coalesce(f.waits and f.cursor_pos = c.pos and f.pos >= coalesce(g.overrun_to, 0), false) as waits
from subscription_groups as g
cross join lateral (select c.pos from group_cursors as c where c.gno = g.gno order by c.id desc limit 1) as c
left join group_floors as f on f.gno = g.gno and f.cursor_pos <= c.pos;

-- The first positions that wait for a group after one position and up to another. One plan for all groups, whatever
-- the number of partitions: making one for each call costs more than running it.
create function first_waiting(of_gno int, after_pos bigint, up_to bigint) returns bigint
language plpgsql stable set search_path from current set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  delivered bigint;
  logged bigint;
  at bigint := after_pos;
begin
  select d.pos into delivered from deliveries as d
    where d.gno = of_gno and d.pos > after_pos and d.pos <= up_to order by d.pos limit 1;
  if exists (select from log_readers as r where r.gno = of_gno and (r.to_pos is null or r.to_pos > after_pos)) then
    -- From the batch that the position is in.
    at := coalesce((select b.first_pos from batches as b where b.first_pos <= after_pos + 1
      order by b.first_pos desc limit 1), 0);
    select b.first_pos + i.ord - 1 into logged
    from batches as b join log_readers as r
      on r.gno = of_gno and b.first_pos > r.from_pos and (r.to_pos is null or b.first_pos <= r.to_pos)
    cross join lateral unnest(b.event_ids) with ordinality as i(event_id, ord)
    where b.first_pos >= at and b.first_pos <= up_to and i.event_id is not null
      and b.first_pos + i.ord - 1 > after_pos and b.first_pos + i.ord - 1 <= up_to
    order by b.first_pos, i.ord limit 1;
  end if;
  return least(delivered, logged);
end $$;

create or replace function roll_events(as_of timestamptz) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  last bigint := (select last_value from event_ids);
  present bigint := last >> 32;
begin
  -- Also partitions that were begun because the one before was full.
  update partitions set opened_at = as_of where parent = 'events' and number <= present and opened_at is null;
  update partitions set closed_at = as_of where parent = 'events' and number < present and closed_at is null;
  -- A clock that was put back must not keep a partition open for as long.
  update partitions set opened_at = as_of where opened_at > as_of and closed_at is null;
  if last & 4294967295 = 0
    or as_of < (select opened_at from partitions where parent = 'events' and number = present)
      + config_value('partition_interval')::interval
    or not exists (select from partitions where parent = 'events' and number = present + 1)
  then
    return false;
  end if;
  perform setval('event_ids', (present + 1) << 32);
  update partitions set closed_at = as_of where parent = 'events' and number = present;
  update partitions set opened_at = as_of where parent = 'events' and number = present + 1;
  return true;
end $$;

-- Whether positions want a new partition: this is asked without the lock.
create function positions_are_old(as_of timestamptz) returns boolean
language sql volatile set search_path from current as $$
  select d.pos & 4294967295 <> 0 and as_of >= (
      select max(p.opened_at) from partitions as p where p.parent = 'deliveries' and p.number = d.pos >> 32)
      + config_value('partition_interval')::interval
    or exists (select from partitions as p where p.parent in ('deliveries', 'batches') and p.number < d.pos >> 32
      and p.closed_at is null)
  from dispatcher_state as d order by d.id desc limit 1
$$;

-- Who is behind the last closed partition, and where. Groups that have read it, for which there was nothing in it, or
-- which still wait at the same position are not looked at again.
create function raise_floors() returns void language plpgsql volatile set search_path from current
set plan_cache_mode = force_custom_plan set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  top bigint := (select max(done_pos) from partitions);
begin
  insert into group_floors as f (gno, pos, cursor_pos, waits)
  select w.gno, coalesce(w.first_pos - 1, top), w.cursor_pos, w.first_pos is not null from (
    select l.gno, l.cursor_pos, case
      when exists (select from log_readers as r where r.gno = l.gno and (r.to_pos is null or r.to_pos > l.pos))
        then first_waiting(l.gno, l.pos, top)
      else (select d.pos from deliveries as d where d.gno = l.gno and d.pos > l.pos and d.pos <= top
        order by d.pos limit 1) end as first_pos
    from floors as l where l.pos < top and not l.waits order by l.pos limit 2000
  ) as w
  on conflict (gno) do update set pos = excluded.pos, cursor_pos = excluded.cursor_pos, waits = excluded.waits;
  delete from group_floors as f where not exists (select from subscription_groups as s where s.gno = f.gno);
end $$;

create or replace function mark_overrun(as_of timestamptz) returns int
language plpgsql volatile set search_path from current as $$
declare
  found_late int;
  allowed interval := config_value('max_lag')::interval;
begin
  with late as (
    select g.gno, f.cursor_pos, max(p.done_pos) as up_to
    from subscription_groups as g join floors as f on f.gno = g.gno
    -- Nothing but what is really there counts: the next position after the floor is waited for.
    join partitions as p on f.waits and p.parent = 'events' and p.done_pos > f.pos
      and p.closed_at < as_of - coalesce(g.max_lag, allowed)
    group by g.gno, f.cursor_pos
  )
  update subscription_groups as g set overrun_at = as_of, overrun_to = late.up_to,
    overrun_from = least(g.overrun_from, late.cursor_pos + 1)
  from late where late.gno = g.gno;
  get diagnostics found_late = row_count;
  with late as (
    select max(p.done_pos) as up_to from partitions as p
    where p.parent = 'events' and p.closed_at < as_of - allowed
  )
  update parked_subscriptions as c set next_pos = late.up_to + 1,
    error = format('%s (positions %s to %s are gone)', c.error, c.next_pos, late.up_to)
  from late where c.next_pos <= late.up_to;
  return found_late;
end $$;

create or replace function low_position() returns bigint language sql volatile set search_path from current as $$
  select least(
    (select min(f.pos) from floors as f),
    (select min(next_pos) - 1 from parked_subscriptions),
    (select pos from dispatcher_state order by id desc limit 1))
$$;

-- Events that all groups have read, for as long as `archive_retention` says. Each of its children was a partition of
-- the log: nothing is copied, and nobody waits until a table has been looked through.
create table archived_events (
  id bigint, xid xid8, at timestamptz, subscription_id int, topic text, payload jsonb, metadata jsonb, retry jsonb
);
create table archives (
  number bigint primary key,          -- of the partition that it was
  closed_at timestamptz not null
);

create function archive_events(part partitions) returns void language plpgsql volatile set search_path from current as $$
declare
  name text := partition_name('events', part.number);
begin
  execute format('alter table events detach partition %I', name);
  execute format('alter table %I rename to %I', name, partition_name('archived_events', part.number));
  execute format('alter table %I inherit archived_events', partition_name('archived_events', part.number));
  insert into archives (number, closed_at) values (part.number, part.closed_at);
end $$;

create function drop_archives(as_of timestamptz) returns int language plpgsql volatile set search_path from current as $$
declare
  n bigint;
  dropped int := 0;
begin
  for n in
    select a.number from archives as a where a.closed_at < as_of - config_value('archive_retention')::interval
    order by a.number limit 10
  loop
    begin
      execute format('lock table %I in access exclusive mode nowait', partition_name('archived_events', n));
      execute format('drop table %I', partition_name('archived_events', n));
      delete from archives where number = n;
      dropped := dropped + 1;
    exception when lock_not_available then
      null;  -- it is being read; the next time
    end;
  end loop;
  return dropped;
end $$;

-- The same as before, but for the lock: nothing is written to a closed partition any more, so what is safe to drop
-- stays so. At most so many at once: whoever publishes waits for them.
create function drop_partitions_v2(as_of timestamptz, at_most int) returns int
language plpgsql volatile set search_path from current as $$
declare
  low bigint := low_position();
  part partitions;
  dropped int := 0;
begin
  for part in
    select * from partitions
    where done_pos <= low and closed_at < as_of - config_value('partition_retention_period')::interval
    order by number, parent
  loop
    exit when dropped >= at_most;
    begin
      -- The parent first, as those who publish do.
      execute format('lock table only %I in access exclusive mode', part.parent);
    exception when lock_not_available then
      exit;  -- somebody is publishing and stays open; each further try would make others wait again
    end;
    begin
      -- Nobody writes to it, but it may be read, vacuumed or dumped, for hours: others need not wait for that.
      execute format('lock table %I in access exclusive mode nowait', partition_name(part.parent, part.number));
      -- Somebody may have drawn an id before it was closed and used it after it was marked.
      if part.parent = 'events' and has_events_beyond(part.number, part.done) then
        update partitions set done = null, done_pos = null where parent = part.parent and number = part.number;
        continue;
      end if;
      if part.parent = 'events' and config_value('archive_retention')::interval > interval '0' then
        perform archive_events(part);
      else
        execute format('drop table %I', partition_name(part.parent, part.number));
      end if;
      delete from partitions where parent = part.parent and number = part.number;
      dropped := dropped + 1;
    exception when lock_not_available then
      null;  -- the next time
    end;
  end loop;
  return dropped;
end $$;

-- Subscriptions that nobody has used for too long, those of them that are too old to come back, and what is left of
-- them. What others hold at the moment is left for the next time: waiting for them could end in a deadlock.
create or replace function expire_subscriptions(as_of timestamptz) returns int
language plpgsql volatile set search_path from current as $$
declare
  expired int;
  keep interval := config_value('max_lag')::interval;
  found_ids int[];
  found_names text[];
begin
  found_ids := array(
    select s.id from subscriptions as s join subscription_activity as a on a.subscription_id = s.id
    where s.expired_at is null and s.expiry_interval is not null
      and greatest(a.last_active_at, (
        select max(c.last_active_at) from client_subscriptions as h join clients as c on c.id = h.client_id
        where h.subscription_id = s.id)) + s.expiry_interval < as_of
    order by s.id limit 10000 for update of s skip locked);
  -- Again, with what was committed before we had them.
  update subscriptions as s set expired_at = as_of
  from subscription_activity as a
  where s.id = any (found_ids) and a.subscription_id = s.id and s.expired_at is null
    and greatest(a.last_active_at, (
      select max(c.last_active_at) from client_subscriptions as h join clients as c on c.id = h.client_id
      where h.subscription_id = s.id)) + s.expiry_interval < as_of;
  get diagnostics expired = row_count;
  found_names := array(select c.id from clients as c where c.last_active_at < as_of - interval '1 hour' and not exists (
      select from client_subscriptions as h join subscriptions as s on s.id = h.subscription_id
      where h.client_id = c.id and s.expired_at is null)
    limit 10000 for update of c skip locked);
  delete from clients as c where c.id = any (found_names) and c.last_active_at < as_of - interval '1 hour'
    and not exists (select from client_subscriptions as h join subscriptions as s on s.id = h.subscription_id
      where h.client_id = c.id and s.expired_at is null);
  found_ids := array(select s.id from subscriptions as s where s.expired_at < as_of - keep
    order by s.id limit 10000 for update of s skip locked);
  delete from subscriptions as s where s.id = any (found_ids) and s.expired_at < as_of - keep;
  found_names := array(select g.id from subscription_groups as g where g.created_at < as_of - keep
      and not exists (select from subscriptions as s where s.gno = g.gno) and coalesce(g.lease_until < as_of, true)
    limit 10000 for update of g skip locked);
  delete from subscription_groups as g where g.id = any (found_names)
    and not exists (select from subscriptions as s where s.gno = g.gno);
  return expired;
end $$;

-- Conditions that nobody uses, but for the three that were there from the beginning.
create function forget_conditions() returns void language plpgsql volatile set search_path from current as $$
declare
  unused int[];
begin
  unused := array(select c.id from conditions as c
    where c.id > 3 and not exists (select from subscriptions as s where s.cond_id = c.id)
    limit 1000 for update of c skip locked);
  delete from conditions as c where c.id = any (unused)
    and not exists (select from subscriptions as s where s.cond_id = c.id);
exception when foreign_key_violation then
  null;  -- somebody has just come to use one; the next time
end $$;

-- Rows that only their successors, or time, made worthless.
create or replace function trim_history(as_of timestamptz) returns void
language plpgsql volatile set search_path from current as $$
begin
  delete from dispatcher_state where id < (select max(id) from dispatcher_state);
  delete from group_cursors as c where exists (select from group_cursors as n where n.gno = c.gno and n.id > c.id);
  delete from log_readers as r where r.to_pos <= (select low_position());
  delete from event_keys where ctid = any (array(
    select k.ctid from event_keys as k where k.at < as_of - config_value('dedup_retention')::interval limit 100000));
  delete from dead_letters where ctid = any (array(
    select d.ctid from dead_letters as d where d.at < as_of - config_value('dead_letter_retention')::interval
    limit 10000));
  delete from rejected where at < as_of - config_value('dead_letter_retention')::interval;
  delete from writers where ctid = any (array(
    select w.ctid from writers as w where w.at < as_of - config_value('writer_retention')::interval
    limit 10000 for update skip locked));
  delete from subscription_failures where at < as_of - interval '1 day';
  delete from parked_subscriptions as p where not exists (
    select from subscriptions as s where s.id = p.subscription_id and s.expired_at is null);
  perform forget_conditions();
  perform forget_shapes();
end $$;

create or replace function make_partitions(of_parent text, up_to bigint) returns int
language plpgsql set search_path from current as $$
declare
  n bigint;
  made int := 0;
begin
  -- A hundred at a time: each takes a moment, and there is always another minute.
  for n in select g from generate_series((select coalesce(max(number) + 1, 0) from partitions where parent = of_parent),
    up_to) as g limit 100
  loop
    perform make_partition(of_parent, n);
    made := made + 1;
  end loop;
  return made;
end $$;

create or replace function maintain_v1(as_of timestamptz default now(), out rolled boolean, out created int,
  out dropped int, out expired int, out overrun int)
language plpgsql volatile security definer set search_path from current set lock_timeout = '200ms' as $$
declare
  ahead int;
begin
  perform set_config('lock_timeout',
    ceil(extract(epoch from config_value('maintenance_lock_timeout')::interval) * 1000)::text, true);
  rolled := false;
  created := 0;
  dropped := 0;
  expired := 0;
  overrun := 0;
  if not isfinite(as_of) then
    raise exception 'maintenance needs a time' using errcode = 'invalid_parameter_value';
  end if;
  -- Another time than now would expire and drop what is others'.
  if abs(extract(epoch from as_of - clock_timestamp())) > 3600 and not is_owner(caller()) then
    raise exception 'only the owner of the schema maintains it for another time than now'
      using errcode = 'insufficient_privilege';
  end if;
  if not pg_try_advisory_xact_lock('partitions'::regclass::oid::int, 1) then
    return;
  end if;
  ahead := partitions_ahead();
  rolled := roll_events(as_of);
  begin
    created := make_partitions('events', ((select last_value from event_ids) >> 32) + ahead)
      + make_partitions('deliveries', ((last_state()).pos >> 32) + ahead)
      + make_partitions('batches', ((last_state()).pos >> 32) + ahead);
  exception when lock_not_available then
    created := 0;
  end;
  begin
    expired := expire_subscriptions(as_of);
    perform mark_dispatched();
    perform raise_floors();
    overrun := mark_overrun(as_of);
    perform trim_history(as_of);
  exception when lock_not_available or deadlock_detected then
    null;  -- somebody holds what we want; the next time
  end;
  begin
    if positions_are_old(as_of) then
      -- Late, because the lock is kept to the end. Most of what is old enough to go can go the next time.
      perform pg_advisory_xact_lock('dispatcher_state'::regclass::oid::int, 1);
      perform roll_positions(as_of);
      dropped := drop_partitions_v2(as_of, 6);
    else
      dropped := drop_partitions_v2(as_of, 30);
    end if;
    perform drop_archives(as_of);
  exception when lock_not_available then
    null;  -- the dispatcher is busy
  end;
end $$;
