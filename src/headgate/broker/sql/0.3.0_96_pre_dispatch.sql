-- Subscriptions are looked up by their condition, for each condition. There are few conditions, of which autovacuum takes
-- no notice, so that the planner took them for many, and read all subscriptions at every poll. Otherwise as before.

create or replace function evaluate_batch(ids bigint[], at_pos bigint, out found_rows matched[], out kept int)
language plpgsql volatile set search_path from current set enable_seqscan = off set jit = off as $$
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
      select from subscriptions as s where s.cond_id = c.id and s.expired_at is null offset 0)
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

create or replace function deliver_v2(ids bigint[], at_pos bigint, evaluated matched[], log_subscriptions int[]) returns int[]
language plpgsql volatile set search_path from current set enable_seqscan = off set jit = off as $$
declare
  reached int[];
  -- Subscriptions to everything, but for those whose groups read the log.
  everything int[] := array(select s.id from conditions as c cross join lateral (
      select s.id from subscriptions as s where s.cond_id = c.id and s.expired_at is null offset 0) as s
    where c.expression = 'true' and s.id <> all (log_subscriptions));
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
