-- Dispatch, so that nobody's event, parameters or condition can stop it for others.
--
-- What topics decide is matched by one static statement. What has to be evaluated is evaluated a few conditions and
-- some events at a time. An event on which a condition raises an error goes to the dead letters of that subscription,
-- with the error, and matching goes on. A subscription that is too slow, or fails too often, is parked.

-- Scheduled events whose time has come become events of the log; what cannot become one is set aside.
create or replace function take_due(n int) returns int
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
declare
  taken int;
  right_now timestamptz := clock_timestamp();  -- the function itself could not be looked up in an index
begin
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
  exception when data_exception or integrity_constraint_violation then
    return take_due_apart(least(n, 1000), right_now);
  end;
end $$;

-- The same, one by one. `n` of them at most: the rest is for the next poll.
create function take_due_apart(n int, right_now timestamptz) returns int
language plpgsql volatile set search_path from current as $$
declare
  due scheduled;
  of_constraint text;
  reason text;
  taken int := 0;
begin
  for due in
    delete from scheduled as s where s.ctid = any (array(
      select d.ctid from scheduled as d where d.due_at <= right_now order by d.due_at, d.id limit n))
    returning s.*
  loop
    taken := taken + 1;
    begin
      insert into events (subscription_id, topic, payload, metadata, retry)
        values (due.subscription_id, due.topic, due.payload, due.metadata, due.retry);
    exception when data_exception or integrity_constraint_violation then
      get stacked diagnostics of_constraint = constraint_name, reason = message_text;
      -- A missing partition has the same SQLSTATE, and is no fault of the row.
      if sqlstate = '23514' and coalesce(of_constraint, '') = '' then
        raise;
      end if;
      insert into rejected (error, scheduled_id, due_at, subscription_id, topic, payload, metadata, retry)
        values (reason, due.id, due.due_at, due.subscription_id, due.topic, due.payload, due.metadata, due.retry);
    end;
  end loop;
  return taken;
end $$;

-- The next events, at most n, and the state in which they are being handed out; finish_batch ends that.
create function next_batch_v2(inout state dispatcher_state, n int, out batch bigint[])
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
  if state.low_id = 9223372036854775807 and cardinality(late) = 0 then
    batch := '{}';
    return;
  end if;
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
end $$;

-- The state after the first `kept` events of a batch of at most n.
create function finish_batch(inout state dispatcher_state, batch bigint[], kept int, n int)
language plpgsql immutable set search_path from current as $$
begin
  if kept = cardinality(batch) and kept < n then
    state.done := state.target;
    state.target := null;
  else
    state.id_done := batch[kept];
  end if;
  state.pos := state.pos + kept;
end $$;

-- What a condition could not be evaluated on, for one subscription: set aside as its dead letter. Its handler has no
-- name: redriven, it goes to all handlers of the subscription.
create function fail_condition(of_event bigint, sid int, reason text, failed_pos bigint) returns void
language plpgsql volatile set search_path from current as $$
declare
  total bigint;
begin
  insert into dead_letters (group_id, subscription_id, handler, attempts, error, event_id, topic, payload, metadata)
  select s.group_id, s.id, '', 0, format('the condition failed: %s', reason), e.id, e.topic, e.payload, e.metadata
  from subscriptions as s, events as e where s.id = sid and e.id = of_event;
  insert into subscription_failures as f (subscription_id, failures, event_id, error) values (sid, 1, of_event, reason)
    on conflict (subscription_id) do update set failures = f.failures + 1, at = clock_timestamp(),
      event_id = of_event, error = reason
    returning f.failures into total;
  if total >= config_value('condition_failures')::int then
    perform park_subscription(sid, failed_pos + 1, of_event, format('%s events failed, the last with: %s', total,
      reason), false);
  end if;
end $$;

create function park_subscription(sid int, from_pos bigint, of_event bigint, reason text, go_on boolean) returns void
language sql volatile set search_path from current as $$
  insert into parked_subscriptions as p (subscription_id, next_pos, event_id, error, resuming)
  values (sid, from_pos, of_event, reason, go_on)
  on conflict (subscription_id) do update set at = clock_timestamp(), next_pos = from_pos, event_id = of_event,
    error = reason, resuming = go_on, waits = false
$$;

-- Some conditions on some events, of which the first has the position after `at_pos` and the place `first` in a batch;
-- each error is kept to the subscription and the event that it is about. Halves what fails until it is one of each.
-- What is left after the deadline, because there are many errors, is evaluated later, for each subscription by itself.
create function evaluate_apart(ids bigint[], conds int[], subs int[], at_pos bigint, first int, deadline timestamptz)
returns matched[]
language plpgsql volatile set search_path from current as $$
declare
  found_rows matched[];
  reason text;
  state text;
  middle int;
  sids int[];
begin
  sids := coalesce(subs, array(select s.id from subscriptions as s where s.cond_id = any (conds)
    and s.expired_at is null order by s.id));
  sids := array(select sid from unnest(sids) as sid
    where not exists (select from parked_subscriptions as p where p.subscription_id = sid));
  if cardinality(sids) = 0 then
    return '{}';
  end if;
  begin
    found_rows := evaluate_v1(ids, conds, sids, '{}');
    return array(select row(m.ord + first - 1, m.subscription_id)::matched from unnest(found_rows) as m);
  exception when others then  -- which a cancelled statement is not one of
    get stacked diagnostics reason = message_text, state = returned_sqlstate;
  end;
  if state = 'HG003' then
    perform park_subscription(sid, at_pos + 1, ids[1], reason, false) from unnest(sids) as sid;
    return '{}';
  end if;
  if cardinality(conds) > 1 then
    middle := cardinality(conds) / 2;
    return evaluate_apart(ids, conds[:middle], null, at_pos, first, deadline)
      || evaluate_apart(ids, conds[middle + 1:], null, at_pos, first, deadline);
  elsif clock_timestamp() > deadline then
    perform park_subscription(sid, at_pos + 1, ids[1], 'the condition raised many errors: it is evaluated later', true)
      from unnest(sids) as sid;
    return '{}';
  elsif cardinality(ids) > 1 then
    middle := cardinality(ids) / 2;
    return evaluate_apart(ids[:middle], conds, subs, at_pos, first, deadline)
      || evaluate_apart(ids[middle + 1:], conds, subs, at_pos + middle, first + middle, deadline);
  elsif cardinality(sids) > 1 then
    middle := cardinality(sids) / 2;
    return evaluate_apart(ids, conds, sids[:middle], at_pos, first, deadline)
      || evaluate_apart(ids, conds, sids[middle + 1:], at_pos, first, deadline);
  end if;
  perform fail_condition(ids[1], sids[1], reason, at_pos + 1);
  return '{}';
end $$;

-- Parks the subscriptions, of these conditions, that take longer than they may. They are tried on a few events, the
-- slow half of them again, and the last one three times: a busy machine must not be taken for a slow condition.
create function park_slow(ids bigint[], conds int[], subs int[], at_pos bigint) returns int
language plpgsql volatile set search_path from current as $$
declare
  allowed interval := config_value('condition_time')::interval * cardinality(ids);
  began timestamptz;
  took interval;
  sids int[] := coalesce(subs, array(select s.id from subscriptions as s where s.cond_id = any (conds)
    and s.expired_at is null order by s.id));
  middle int;
begin
  sids := array(select sid from unnest(sids) as sid
    where not exists (select from parked_subscriptions as p where p.subscription_id = sid));
  if cardinality(sids) = 0 then
    return 0;
  end if;
  for try in 1 .. case when cardinality(sids) = 1 then 3 else 1 end loop
    began := clock_timestamp();
    begin
      perform evaluate_v1(ids, conds, sids, '{}');
    exception when others then
      null;  -- what it raises is looked after elsewhere
    end;
    took := clock_timestamp() - began;
    if took <= allowed then
      return 0;
    end if;
  end loop;
  if cardinality(sids) = 1 then
    perform park_subscription(sids[1], at_pos + 1, ids[1], format('too slow: %s ms for an event, and condition_time'
      ' is %s', round(extract(epoch from took) * 1000 / cardinality(ids)), config_value('condition_time')), false);
    return 1;
  end if;
  middle := cardinality(sids) / 2;
  return park_slow(ids, conds, sids[:middle], at_pos) + park_slow(ids, conds, sids[middle + 1:], at_pos);
end $$;

-- What has to be evaluated for a batch whose first event has the position after `at_pos`, and for how many of its
-- events that was done: not for all, if it takes so long that others would wait.
create function evaluate_batch(ids bigint[], at_pos bigint, out found_rows matched[], out kept int)
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off as $$
declare
  n int := cardinality(ids);
  began timestamptz := clock_timestamp();
  slice_began timestamptz;
  size int := 4;  -- of a slice of the batch: one event may take a second
  chunk int[];
  conds int[];
  slice bigint[];
  part matched[];
  tried bigint[];
  parked int[];
begin
  found_rows := '{}';
  kept := 0;
  -- Those that topics lead to, and those that have to be asked about everything.
  conds := array(
    select c.id from conditions as c where c.evaluated and c.route is null and exists (
      select from subscriptions as s where s.cond_id = c.id and s.expired_at is null)
    order by c.id);
  if exists (select from conditions as c where c.evaluated and c.route is not null) then
    conds := conds || array(
      select distinct t.cond_id from (
        select distinct e.topic from events as e where e.id = any (ids) and e.id between ids[1] and ids[n]
          and e.subscription_id is null offset 0) as b
      cross join lateral (select t.cond_id from subscription_topics as t where t.topic = b.topic and t.evaluated
        offset 0) as t
      order by 1);
  end if;
  if cardinality(conds) = 0 then
    kept := n;
    return;
  end if;
  while kept < n loop
    slice := ids[kept + 1:kept + size];
    for chunk in select conds[i:i + 49] from generate_series(1, cardinality(conds), 50) as i loop
      slice_began := clock_timestamp();
      parked := array(select p.subscription_id from parked_subscriptions as p);
      begin
        begin
          part := evaluate_v1(slice, chunk, null, parked);
        exception when others then
          part := evaluate_apart(slice, chunk, null, at_pos + kept, 1, began + interval '1 second');
        end;
        if clock_timestamp() - slice_began > interval '1 ms' * cardinality(slice)
          and clock_timestamp() - slice_began > config_value('condition_time')::interval * cardinality(slice)
        then
          -- From the events after these on: these have been done.
          tried := slice[1:3];
          perform park_slow(tried, chunk, null, at_pos + kept + cardinality(slice));
        end if;
      exception when query_canceled then
        if clock_timestamp() - slice_began < config_value('condition_time')::interval then
          raise;  -- it was not evaluation that took so long
        end if;
        -- A second try in this statement would be stopped by nobody. Polls to come evaluate each of these for itself,
        -- and the one that is cancelled again stays parked.
        perform park_subscription(s.id, at_pos + kept + 1, slice[1], 'evaluation was cancelled: it took too long', true)
          from subscriptions as s where s.cond_id = any (chunk) and s.expired_at is null and s.id <> all (parked);
        update parked_subscriptions set waits = true where resuming and subscription_id <> all (parked);
        found_rows := array(select m from unnest(found_rows) as m where m.ord <= kept);
        return;
      end;
      found_rows := found_rows || array(select row(m.ord + kept, m.subscription_id)::matched from unnest(part) as m);
    end loop;
    kept := kept + cardinality(slice);
    size := size * 8;
    -- Others wait, or the matches get too many to be held in memory: the rest is for the next poll.
    exit when clock_timestamp() - began > interval '1 second' or cardinality(found_rows) > 200000;
  end loop;
end $$;

-- Writes what goes to groups for a batch whose first event has the position after `at_pos`; the groups.
create function deliver_v2(ids bigint[], at_pos bigint, evaluated matched[], log_subscriptions int[]) returns int[]
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off as $$
declare
  reached int[];
  -- Subscriptions to everything, but for those whose groups read the log.
  everything int[] := array(select s.id from conditions as c join subscriptions as s on s.cond_id = c.id
    where c.expression = 'true' and s.expired_at is null and s.id <> all (log_subscriptions));
  by_pattern topic_match[] := '{}';
begin
  if exists (select from topic_shapes) then
    by_pattern := match_patterns(array(select distinct e.topic from events as e
      where e.id = any (ids) and e.id between ids[1] and ids[cardinality(ids)] and e.subscription_id is null));
  end if;
  -- "offset 0" keeps look-ups what they are. A batch has no statistics, and the planner would compare every event with
  -- every topic.
  with batch as materialized (
    select i.ord, e.topic, e.subscription_id from unnest(ids) with ordinality as i(id, ord)
    cross join lateral (select e.topic, e.subscription_id from events as e
      where e.id = i.id and e.id between ids[1] and ids[cardinality(ids)] offset 0) as e
  ), written as (
    insert into deliveries (gno, pos, event_id, subscription_ids)
    select m.gno, at_pos + m.ord, ids[m.ord::int], array_agg(m.id order by m.id) from (
      -- A direct event asks for no condition, and finds also who has expired.
      select e.ord, s.gno, s.id from batch as e cross join lateral (
        select s.gno, s.id from subscriptions as s where s.id = e.subscription_id offset 0) as s
      where e.subscription_id is not null
      union all
      select e.ord, t.gno, t.subscription_id from batch as e cross join lateral (
        select t.gno, t.subscription_id from subscription_topics as t
        where t.topic = e.topic and not t.evaluated offset 0) as t
      where e.subscription_id is null
      union all
      select e.ord, p.gno, p.subscription_id from batch as e join unnest(by_pattern) as p on p.topic = e.topic
      where e.subscription_id is null
      union all
      select e.ord, s.gno, s.id from batch as e cross join (
        select s.gno, s.id from subscriptions as s where s.id = any (everything) offset 0) as s
      where e.subscription_id is null
      union all
      select v.ord, s.gno, s.id from unnest(evaluated) as v cross join lateral (
        select s.gno, s.id from subscriptions as s where s.id = v.subscription_id offset 0) as s
    ) as m group by m.ord, m.gno order by m.ord, m.gno
    returning gno
  )
  select coalesce(array_agg(w.gno), '{}') into reached from written as w;
  return reached;
end $$;

-- The order of a batch, for groups that read the log and for subscriptions that are parked.
create function note_batch(ids bigint[], at_pos bigint) returns void
language sql volatile set search_path from current set enable_seqscan = off as $$
  insert into batches (first_pos, event_ids)
  select at_pos + 1, array_agg(case when e.subscription_id is null then e.id end order by e.id)
  from events as e where e.id = any (ids) and e.id between ids[1] and ids[cardinality(ids)]
$$;

create or replace function poll_for_events_v1(chunk int default null, out dispatched int, out delivered int,
  out more boolean)
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan as $$
declare
  old_state dispatcher_state;
  state dispatcher_state;
  n int := coalesce(chunk, config_value('poll_chunk_size')::int);
  chosen record;
  due int;
  batch bigint[];
  judged record;
  log_subscriptions int[];
  groups int[];
  resumed record;
begin
  dispatched := 0;
  delivered := 0;
  more := false;
  if n not between 1 and 100000 then
    raise exception 'a poll takes 1 to 100000 events' using errcode = 'invalid_parameter_value';
  end if;
  if current_setting('transaction_isolation') <> 'read committed' then
    raise exception 'polling needs the isolation level read committed' using errcode = 'invalid_transaction_state';
  end if;
  -- Before the lock: what was parked is evaluated while others dispatch.
  resumed := evaluate_parked();
  if resumed.cancelled then
    more := true;
    return;
  elsif resumed.subscription_id is not null then
    perform pg_advisory_xact_lock('dispatcher_state'::regclass::oid::int, 1);
    more := resume_step(resumed.subscription_id, resumed.from_pos, resumed.up_to, resumed.event_ids);
  elsif not try_dispatcher_lock() then
    return;
  end if;
  due := take_due(n);
  old_state := last_state();
  perform follow_changes(old_state.pos);
  select * into chosen from next_batch_v2(old_state, n);
  state := chosen.state;
  batch := chosen.batch;
  if cardinality(batch) = 0 then
    -- Nobody writes when nothing has happened, however many transactions have ended.
    if old_state.target is not null then
      perform append_state(finish_batch(state, batch, 0, n));
    end if;
    more := more or due > 0 or old_state.target is not null;
    return;
  end if;
  judged := evaluate_batch(batch, state.pos);
  dispatched := judged.kept;
  if dispatched = 0 then
    more := true;
    return;
  end if;
  -- Also after the end of a target that was begun earlier: it knows nothing of what has come since.
  more := more or due > 0 or dispatched = n or dispatched < cardinality(batch) or old_state.target is not null;
  log_subscriptions := array(select r.subscription_id from log_readers as r where r.to_pos is null);
  groups := deliver_v2(batch[:dispatched], state.pos, judged.found_rows, log_subscriptions);
  if cardinality(log_subscriptions) > 0 or exists (select from parked_subscriptions) then
    perform note_batch(batch[:dispatched], state.pos);
  end if;
  delivered := cardinality(groups);
  perform append_state(finish_batch(state, batch, dispatched, n));
  perform tell(groups, cardinality(log_subscriptions) > 0);
end $$;
