-- Maintenance: call it every minute or so, from anywhere; one at a time works, the others return at once.
--
-- Nothing is dropped because of its age alone. A partition goes when all of its events have been dispatched, every
-- group has read them, no parked condition waits for them, and it is older than the retention. A group that lags by
-- more than its max_lag does not hold others up: it is marked as overrun, and its next read says what is gone.

-- Begins the next partition of events, which must be there and committed, if the present one is old enough.
create function roll_events(as_of timestamptz) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  last bigint := (select last_value from event_ids);
  present bigint := last >> 32;
begin
  -- Also partitions that were begun because the one before was full.
  update partitions set opened_at = as_of where parent = 'events' and number <= present and opened_at is null;
  update partitions set closed_at = as_of where parent = 'events' and number < present and closed_at is null;
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

-- The same for positions. They are the dispatcher's, so this is part of its state.
create function roll_positions(as_of timestamptz) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  state dispatcher_state;
  present bigint;
begin
  state := last_state();
  present := state.pos >> 32;
  update partitions set closed_at = as_of, done_pos = state.pos
    where parent in ('deliveries', 'batches') and number < present and closed_at is null;
  if state.pos & 4294967295 = 0
    or as_of < (select max(opened_at) from partitions where parent = 'deliveries' and number = present)
      + config_value('partition_interval')::interval
    or not exists (select from partitions where parent = 'batches' and number = present + 1)
  then
    return false;
  end if;
  state.pos := (present + 1) << 32;
  perform append_state(state);
  update partitions set closed_at = as_of, done_pos = state.pos
    where parent in ('deliveries', 'batches') and number = present;
  update partitions set opened_at = as_of where parent in ('deliveries', 'batches') and number = present + 1;
  return true;
end $$;

-- Whether a partition of events has rows that a snapshot does not see.
create function has_events_beyond(of_number bigint, seen pg_snapshot) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  found_one boolean;
begin
  execute format('select exists (select from %1$I where xid >= $1) or exists (select from %1$I where xid = any ($2))',
    partition_name('events', of_number))
    into found_one using pg_snapshot_xmax(seen), array(select pg_snapshot_xip(seen));
  return found_one;
end $$;

-- Notes which closed partitions of events have been dispatched, and up to which position they may be wanted.
create function mark_dispatched() returns void language plpgsql volatile set search_path from current as $$
declare
  state dispatcher_state := last_state();
  n bigint;
begin
  for n in
    select number from partitions where parent = 'events' and closed_at is not null and done is null order by number
  loop
    begin
      -- Who has it for share knows that nobody who has written to it is still open.
      execute format('lock table %I in share mode', partition_name('events', n));
      continue when has_events_beyond(n, state.done);
      update partitions set done = state.done, done_pos = state.pos where parent = 'events' and number = n;
      execute format('analyze %I', partition_name('events', n));
    exception when lock_not_available then
      null;  -- next time
    end;
  end loop;
end $$;

-- What is at this position and before, a group does not want any more: also if its cursor is older because there has
-- been nothing for it since. Exact for whoever holds the dispatcher's lock.
create function read_up_to(of_gno int) returns bigint language plpgsql volatile set search_path from current as $$
declare
  first_waiting bigint;
begin
  select n.pos into first_waiting from subscription_groups as g,
    next_positions(of_gno, greatest(group_cursor(of_gno), g.overrun_to), 1) as n where g.gno = of_gno;
  return coalesce(first_waiting - 1, (select pos from dispatcher_state order by id desc limit 1));
end $$;

-- Groups and parked conditions that are too far behind to be waited for.
create function mark_overrun(as_of timestamptz) returns int
language plpgsql volatile set search_path from current as $$
declare
  found_late int;
begin
  with reading as materialized (
    select g.gno, g.max_lag, read_up_to(g.gno) as up_to from subscription_groups as g
  ), late as (
    select g.gno, max(p.done_pos) as up_to
    from reading as g join partitions as p on p.parent = 'events' and p.done_pos > g.up_to
      and p.closed_at < as_of - coalesce(g.max_lag, config_value('max_lag')::interval)
    group by g.gno
  )
  update subscription_groups as g set overrun_at = as_of, overrun_to = late.up_to,
    overrun_from = least(g.overrun_from, group_cursor(g.gno) + 1)
  from late where late.gno = g.gno;
  get diagnostics found_late = row_count;
  with late as (
    select max(p.done_pos) as up_to from partitions as p
    where p.parent = 'events' and p.closed_at < as_of - config_value('max_lag')::interval
  )
  update conditions as c set parked_pos = late.up_to + 1,
    parked_error = format('%s (positions %s to %s are gone)', c.parked_error, c.parked_pos, late.up_to)
  from late where c.parked_pos <= late.up_to;
  return found_late;
end $$;

-- Up to this position, nobody wants anything any more.
create function low_position() returns bigint language sql volatile set search_path from current as $$
  select least(
    (select min(read_up_to(g.gno)) from subscription_groups as g),
    (select min(parked_pos) - 1 from conditions),
    (select pos from dispatcher_state order by id desc limit 1))
$$;

create function drop_partitions(as_of timestamptz) returns int
language plpgsql volatile set search_path from current as $$
declare
  low bigint := low_position();
  part partitions;
  dropped int := 0;
begin
  for part in
    select * from partitions
    where done_pos <= low and closed_at < as_of - config_value('partition_retention_period')::interval
    order by parent, number
  loop
    begin
      -- The parent first, as those who publish do.
      execute format('lock table only %I, %I in access exclusive mode', part.parent,
        partition_name(part.parent, part.number));
      -- Somebody may have drawn an id before it was closed and used it after it was marked.
      if part.parent = 'events' and has_events_beyond(part.number, part.done) then
        update partitions set done = null, done_pos = null where parent = part.parent and number = part.number;
        continue;
      end if;
      execute format('drop table %I', partition_name(part.parent, part.number));
      delete from partitions where parent = part.parent and number = part.number;
      dropped := dropped + 1;
    exception when lock_not_available then
      exit;  -- somebody is publishing and stays open; each further try would make others wait again
    end;
  end loop;
  return dropped;
end $$;

-- Subscriptions that nobody has used for too long. They are kept for a while, for those who come back.
create function expire_subscriptions(as_of timestamptz) returns int
language plpgsql volatile set search_path from current as $$
declare
  expired int;
  keep interval := config_value('max_lag')::interval;
begin
  update subscriptions as s set expired_at = as_of
  from subscription_activity as a
  where a.subscription_id = s.id and s.expired_at is null and s.expiry_interval is not null
    and greatest(a.last_active_at, (
      select max(c.last_active_at) from client_subscriptions as h join clients as c on c.id = h.client_id
      where h.subscription_id = s.id)) + s.expiry_interval < as_of;
  get diagnostics expired = row_count;
  delete from clients as c where c.last_active_at < as_of - interval '1 hour' and not exists (
    select from client_subscriptions as h join subscriptions as s on s.id = h.subscription_id
    where h.client_id = c.id and s.expired_at is null);
  delete from subscriptions where expired_at < as_of - keep;
  delete from subscription_groups as g where g.created_at < as_of - keep
    and not exists (select from subscriptions as s where s.gno = g.gno)
    and coalesce(g.lease_until < as_of, true);
  return expired;
end $$;

-- Rows that only their successors made worthless.
create function trim_history(as_of timestamptz) returns void language sql volatile set search_path from current as $$
  delete from dispatcher_state where id < (select max(id) from dispatcher_state);
  delete from group_cursors as c where exists (select from group_cursors as n where n.gno = c.gno and n.id > c.id);
  delete from log_readers as r where r.to_pos <= low_position();
  delete from event_keys where at < as_of - config_value('dedup_retention')::interval;
$$;

create function maintain_v1(as_of timestamptz default now(), out rolled boolean, out created int, out dropped int,
  out expired int, out overrun int)
language plpgsql volatile set search_path from current set lock_timeout = '200ms' as $$
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
  if not pg_try_advisory_xact_lock('partitions'::regclass::oid::int, 1) then
    return;
  end if;
  ahead := partitions_ahead();
  rolled := roll_events(as_of);
  begin
    created := make_partitions('events', ((select last_value from event_ids) >> 32) + ahead);
  exception when lock_not_available then
    null;
  end;
  expired := expire_subscriptions(as_of);
  begin
    perform pg_advisory_xact_lock('dispatcher_state'::regclass::oid::int, 1);
    perform roll_positions(as_of);
    created := created + make_partitions('deliveries', ((last_state()).pos >> 32) + ahead)
      + make_partitions('batches', ((last_state()).pos >> 32) + ahead);
    perform mark_dispatched();
    overrun := mark_overrun(as_of);
    perform trim_history(as_of);
    dropped := drop_partitions(as_of);
  exception when lock_not_available then
    null;  -- the dispatcher is busy
  end;
end $$;

create function maintain(as_of timestamptz default now(), out rolled boolean, out created int, out dropped int,
  out expired int, out overrun int)
language sql volatile set search_path from current as $$
  select * from maintain_v1(as_of)
$$;

create function maintain_events_table() returns void language plpgsql volatile set search_path from current as $$
begin
  perform maintain_v1();
end $$;
