-- Dispatch: what has been committed since the last time, in order of ids, to the groups that want it.
--
-- The state holds a snapshot, and what a newer snapshot sees beyond it is new: a transaction that commits late is in
-- it, whatever its ids. The events of one target snapshot are handed out in order of ids, a chunk at a time, because
-- cutting by transactions would turn the order of events around that were published one after the other's commit.

-- Rows of a batch that conditions match, as a role that may read these four tables and nothing else.
create function match_events(ids bigint[], conds int[], log_subscriptions int[])
returns table (ord bigint, event_id bigint, gno int, subscription_ids int[])
language plpgsql security definer set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  matching text;
begin
  -- "offset 0" keeps look-ups what they are. A batch has no statistics, and the planner would compare every event with
  -- every topic.
  select string_agg(format(
      case when c.route is null then
        'select e.ord, s.gno, s.id from batch as e join subscriptions as s on s.cond_id = %1$s'
        ' where e.subscription_id is null and s.expired_at is null and s.id <> all ($2) and (%2$s)'
      when c.expression = route_clause(c.route) then
        'select e.ord, t.gno, t.subscription_id from batch as e'
        ' cross join lateral (select * from subscription_topics as t'
        ' where t.topic = e.topic and t.cond_id = %1$s offset 0) as t where e.subscription_id is null'
      else
        'select e.ord, s.gno, s.id from batch as e'
        ' cross join lateral (select s.* from subscription_topics as t'
        ' join subscriptions as s on s.id = t.subscription_id'
        ' where t.topic = e.topic and t.cond_id = %1$s offset 0) as s'
        ' where e.subscription_id is null and (%2$s)'
      end, c.id, c.expression), ' union all ')
    into matching
    from conditions as c
    where c.id = any (conds)
      and exists (select from subscriptions as s where s.cond_id = c.id and s.expired_at is null);
  return query execute
    'with batch as materialized (select e.*, i.ord from events as e'
    ' join unnest($1) with ordinality as i(id, ord) on i.id = e.id where e.id between $3 and $4)'
    ' select m.ord, $1[m.ord::int], m.gno, array_agg(m.id order by m.id) from ('
    -- A direct event asks for no condition, and finds also who has expired.
    ' select e.ord, s.gno, s.id from batch as e join subscriptions as s on s.id = e.subscription_id'
    ' where e.subscription_id is not null'
    || coalesce(' union all ' || matching, '')
    || ') as m group by m.ord, m.gno'
    using ids, log_subscriptions, ids[1], ids[cardinality(ids)];
end $$;

-- The snapshot of all other transactions. One's own is not over: what it publishes after a poll must not be taken for
-- done.
create function snapshot_of_others() returns pg_snapshot
language plpgsql volatile set search_path from current as $$
declare
  seen pg_snapshot := pg_current_snapshot();
  own xid8 := pg_current_xact_id_if_assigned();
begin
  if own is null or own >= pg_snapshot_xmax(seen) then
    return seen;
  end if;
  return (select format('%s:%s:%s', least(pg_snapshot_xmin(seen), own), pg_snapshot_xmax(seen),
      string_agg(x::text, ',' order by x))::pg_snapshot
    from (select pg_snapshot_xip(seen) union select own) as running(x));
end $$;

-- One dispatcher at a time. An advisory lock, because taking a row's would write even when there is nothing to do.
create function try_dispatcher_lock() returns boolean language sql volatile set search_path from current as $$
  select pg_try_advisory_xact_lock('dispatcher_state'::regclass::oid::int, 1)
$$;

create function last_state() returns dispatcher_state
language plpgsql volatile set search_path from current as $$
declare
  state dispatcher_state;
begin
  select * into strict state from dispatcher_state order by id desc limit 1;
  if state.system_id <> (select system_identifier from pg_control_system()) then
    raise exception 'this database comes from another cluster, whose transactions had other numbers'
      using errcode = 'HG002', hint = 'Run rebase() once: it finds what had not been dispatched there.';
  end if;
  return state;
end $$;

create function append_state(state dispatcher_state) returns void language sql set search_path from current as $$
  insert into dispatcher_state (id, pos, done, target, low_id, id_done, system_id, timeline)
  values (state.id + 1, state.pos, state.done, state.target, state.low_id, state.id_done, state.system_id,
    state.timeline)
$$;

-- The next events, at most n; the state after them. It becomes whole with fewer than n.
create function next_batch(inout state dispatcher_state, n int, out batch bigint[])
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan
-- Young partitions have no statistics, and the planner likes to collect and sort them. Their indexes have the order.
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  running xid8[];
  late xid8[];
begin
  if state.target is null then
    state.target := snapshot_of_others();
    state.id_done := 0;
    -- "offset 0" keeps this on the index of transactions; min() would walk the ids from the first one on.
    select coalesce(min(q.id), 9223372036854775807) into state.low_id from (
      select e.id from events as e
      where e.xid >= pg_snapshot_xmax(state.done) and e.xid < pg_snapshot_xmax(state.target) offset 0) as q;
  end if;
  running := array(select pg_snapshot_xip(state.target));
  late := array(select x from pg_snapshot_xip(state.done) as x where x <> all (running));
  batch := array(
    select u.id from (
      (select e.id from events as e    -- of transactions that have begun since
        where e.id >= greatest(state.low_id, state.id_done + 1) and e.xid >= pg_snapshot_xmax(state.done)
          and e.xid < pg_snapshot_xmax(state.target) and e.xid <> all (running)
        order by e.id limit n)
      union all
      (select l.id from (              -- of transactions that were open then, and are not any more
        select e.id from events as e
        where cardinality(late) > 0 and e.xid = any (late) and e.id > state.id_done offset 0) as l
        order by l.id limit n)
    ) as u order by u.id limit n);
  if cardinality(batch) < n then
    state.done := state.target;
    state.target := null;
  else
    state.id_done := batch[n];
  end if;
end $$;

-- Events whose time has come become events of the log; the next batch has them.
create function take_due(n int) returns int
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  taken int;
  right_now timestamptz := clock_timestamp();  -- the function itself could not be looked up in an index
begin
  with gone as (
    delete from scheduled as s where s.ctid = any (array(
      select d.ctid from scheduled as d where d.due_at <= right_now order by d.due_at, d.id limit n))
    returning s.*
  )
  insert into events (subscription_id, topic, payload, metadata, retry)
  select g.subscription_id, g.topic, g.payload, g.metadata, g.retry from gone as g order by g.due_at, g.id;
  get diagnostics taken = row_count;
  return taken;
end $$;

-- Groups, of these, that have one subscription and no other, which matches everything.
create function alone(groups int[]) returns table (gno int, subscription_id int)
language sql stable set search_path from current as $$
  select s.gno, min(s.id)
  from subscriptions as s join conditions as c on c.id = s.cond_id
  where s.gno = any (groups) and s.expired_at is null
  group by s.gno having count(*) = 1 and bool_and(c.expression = 'true')
$$;

-- Groups that read the log themselves from this position on, and those that do not any more.
create function follow_changes(at_pos bigint) returns void
language plpgsql volatile set search_path from current as $$
declare
  changed int[];
begin
  with gone as (delete from subscription_changes returning gno)
    select array_agg(distinct gno) into changed from gone;
  if changed is null then
    return;
  end if;
  update log_readers as r set to_pos = at_pos
  where r.gno = any (changed) and r.to_pos is null
    and not exists (select from alone(changed) as a where a.gno = r.gno and a.subscription_id = r.subscription_id);
  delete from log_readers as r where r.gno = any (changed) and r.from_pos = r.to_pos;
  insert into log_readers (gno, subscription_id, from_pos)
  select a.gno, a.subscription_id, at_pos from alone(changed) as a
  where not exists (select from log_readers as r where r.gno = a.gno and r.to_pos is null);
end $$;

-- Writes what goes to groups for a batch whose first event has the position after `at_pos`; the groups.
create function deliver(ids bigint[], conds int[], log_subscriptions int[], at_pos bigint) returns int[]
language plpgsql volatile set search_path from current as $$
declare
  reached int[];
begin
  with written as (
    insert into deliveries (gno, pos, event_id, subscription_ids)
    select m.gno, at_pos + m.ord, m.event_id, m.subscription_ids
    from match_events(ids, conds, log_subscriptions) as m order by m.ord, m.gno
    returning gno
  )
  select coalesce(array_agg(w.gno), '{}') into reached from written as w;
  return reached;
end $$;

-- Finds the conditions that raise on a batch and takes them out, so that the others can go on. What they have not seen
-- is kept until they are resumed or replaced. The number of those that were found.
create function park_failing(ids bigint[], conds int[], log_subscriptions int[], at_pos bigint) returns int
language plpgsql volatile set search_path from current as $$
declare
  cond int;
  reason text;
  low int;
  high int;
  middle int;
  parked int := 0;
begin
  foreach cond in array conds loop
    begin
      perform from match_events(ids, array[cond], log_subscriptions);
      continue;
    exception when others then
      reason := sqlerrm;
    end;
    -- The first event that it raises on: the shortest beginning of the batch that fails.
    low := 1;
    high := cardinality(ids);
    while low < high loop
      middle := (low + high) / 2;
      begin
        perform from match_events(ids[:middle], array[cond], log_subscriptions);
        low := middle + 1;
      exception when others then
        high := middle;
      end;
    end loop;
    update conditions set parked_at = clock_timestamp(), parked_pos = at_pos + 1, parked_event = ids[low],
      parked_error = reason where id = cond;
    parked := parked + 1;
  end loop;
  return parked;
end $$;

-- One round for all groups. `more`: call again at once, there is something waiting.
create function poll_for_events_v1(chunk int default null, out dispatched int, out delivered int, out more boolean)
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  old_state dispatcher_state;
  state dispatcher_state;
  n int := coalesce(chunk, config_value('poll_chunk_size')::int);
  chosen record;
  due int;
  batch bigint[];
  conds int[];
  log_subscriptions int[];
  groups int[];
  failed boolean := false;
begin
  dispatched := 0;
  delivered := 0;
  more := false;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'polling needs the isolation level read committed' using errcode = 'invalid_transaction_state';
  end if;
  if not try_dispatcher_lock() then
    return;
  end if;
  due := take_due(n);
  old_state := last_state();
  perform follow_changes(old_state.pos);
  select * into chosen from next_batch(old_state, n);
  state := chosen.state;
  batch := chosen.batch;
  dispatched := cardinality(batch);
  -- Also after the end of a target that was begun earlier: it knows nothing of what has come since.
  more := due > 0 or dispatched = n or old_state.target is not null;
  if dispatched = 0 then
    -- Nobody writes when nothing has happened, however many transactions have ended.
    if old_state.target is not null then
      perform append_state(state);
    end if;
    return;
  end if;
  log_subscriptions := array(select r.subscription_id from log_readers as r where r.to_pos is null);
  conds := array(select c.id from conditions as c where c.parked_at is null);
  begin
    groups := deliver(batch, conds, log_subscriptions, state.pos);
  exception when others then
    if park_failing(batch, conds, log_subscriptions, state.pos) = 0 then
      raise;
    end if;
    failed := true;
  end;
  conds := array(select c.id from conditions as c where c.parked_at is null);
  if failed then
    groups := deliver(batch, conds, log_subscriptions, state.pos);
  end if;
  if cardinality(log_subscriptions) > 0 or exists (select from conditions as c where c.parked_at is not null) then
    insert into batches (first_pos, event_ids)
    select state.pos + 1, array_agg(case when e.subscription_id is null then e.id end order by e.id)
    from events as e where e.id = any (batch) and e.id between batch[1] and batch[dispatched];
  end if;
  delivered := cardinality(groups);
  state.pos := state.pos + dispatched;
  perform append_state(state);
  perform tell(groups, cardinality(log_subscriptions) > 0);
end $$;

-- Wakes readers: one notification for a batch, sent when it commits. Its payload names groups, or is empty: anyone.
create function tell(groups int[], all_of_them boolean) returns void
language plpgsql volatile set search_path from current as $$
declare
  names text := coalesce((select string_agg(distinct g::text, ',') from unnest(groups) as g), '');
begin
  if all_of_them or names <> '' then
    perform pg_notify(current_schema() || '_events',
      case when all_of_them or length(names) > 7000 then '' else names end);
  end if;
end $$;

-- What a parked condition has missed, evaluated and delivered now, at new positions. False: it raised again, further on
-- or not, and is parked still. `replacement` takes the condition's place; `skip` leaves out the event it raised on.
create function resume_condition_v1(of_condition int, replacement text default null, skip boolean default false)
returns boolean language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  cond conditions;
  state dispatcher_state;
  missed record;
  one bigint[];
  groups int[];
begin
  perform pg_advisory_xact_lock('dispatcher_state'::regclass::oid::int, 1);
  if replacement is not null then
    update conditions set expression = understood(replacement), route = null, source = replacement,
      source_key = sha256(convert_to(replacement, 'UTF8')) where id = of_condition;
  end if;
  select * into cond from conditions where id = of_condition and parked_at is not null for update;
  if not found then
    raise exception 'the condition % is not parked', of_condition using errcode = 'undefined_object';
  end if;
  state := last_state();
  for missed in
    select i.event_id, b.first_pos + i.ord - 1 as pos
    from batches as b cross join lateral unnest(b.event_ids) with ordinality as i(event_id, ord)
    where b.first_pos >= coalesce((select max(f.first_pos) from batches as f where f.first_pos <= cond.parked_pos), 0)
      and b.first_pos + i.ord - 1 >= cond.parked_pos
      and i.event_id is not null and not (skip and i.event_id = cond.parked_event)
    order by b.first_pos, i.ord
  loop
    one := array[missed.event_id];
    begin
      groups := deliver(one, array[of_condition], '{}', state.pos);
    exception when others then
      update conditions set parked_at = clock_timestamp(), parked_pos = missed.pos, parked_event = missed.event_id,
        parked_error = sqlerrm where id = of_condition;
      perform append_state(state);
      return false;
    end;
    if cardinality(groups) > 0 then
      state.pos := state.pos + 1;
    end if;
  end loop;
  update conditions set parked_at = null, parked_pos = null, parked_event = null, parked_error = null
    where id = of_condition;
  perform append_state(state);
  perform tell('{}', true);
  return true;
end $$;

-- After a dump was restored in another cluster, or a logical copy: finds by what is stored there what had not been
-- dispatched, and gives it to a transaction of this cluster. It writes the whole log again.
create function rebase_v1() returns bigint language plpgsql volatile set search_path from current as $$
declare
  state dispatcher_state;
  waiting bigint;
begin
  perform pg_advisory_xact_lock('dispatcher_state'::regclass::oid::int, 1);
  lock table events in share row exclusive mode;
  select * into strict state from dispatcher_state order by id desc limit 1;
  if state.system_id = (select system_identifier from pg_control_system()) then
    return 0;
  end if;
  update events as e set xid = case
    when pg_visible_in_snapshot(e.xid, state.done)
      or state.target is not null and e.id <= state.id_done and pg_visible_in_snapshot(e.xid, state.target)
    then '1'::xid8 else pg_current_xact_id() end
    where e.id > 0;
  select count(*) into waiting from events as e where e.xid = pg_current_xact_id();
  perform setval('event_ids', greatest((select last_value from event_ids), (select max(id) from events), 1));
  state.target := null;
  state.done := snapshot_of_others();
  -- This transaction is new in any case: also if nothing has ended since it began.
  if pg_visible_in_snapshot(pg_current_xact_id(), state.done) then
    raise exception 'the snapshot has this transaction in it' using errcode = 'internal_error';
  end if;
  select s.system_identifier, c.timeline_id into state.system_id, state.timeline
    from pg_control_system() as s, pg_control_checkpoint() as c;
  perform append_state(state);
  -- Snapshots of the other cluster say nothing here; they are made again.
  update partitions set done = null, done_pos = null;
  return waiting;
end $$;

create function rebase() returns bigint language sql set search_path from current as $$
  select rebase_v1()
$$;

create function resume_condition(condition_id int, replacement text default null, skip boolean default false)
returns boolean language sql set search_path from current as $$
  select resume_condition_v1(condition_id, replacement, skip)
$$;

-- The number of rows that were written, as callers of this name expect it.
create function poll_for_events() returns int language sql set search_path from current as $$
  select delivered from poll_for_events_v1()
$$;
