-- What operators look at: quick with a thousand groups, and nothing that has stopped is hidden.

-- How many events wait for a group, up to ten thousand. Positions are of all groups and have gaps, so they do not tell.
create function group_status_v1() returns table (group_id text, "cursor" bigint, last_pos bigint, owner text,
  lease_until timestamptz, epoch bigint, overrun_at timestamptz, overrun_from bigint, overrun_to bigint,
  subscriptions bigint, behind bigint, parked bigint, failures bigint)
language plpgsql stable set search_path from current set plan_cache_mode = force_custom_plan
-- One plan for all groups; that of a thousand groups must not read the log for them.
set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  return query
  select g.id, f.cursor_pos, d.pos, g.owner, g.lease_until, g.epoch, g.overrun_at, g.overrun_from, g.overrun_to,
    coalesce(s.subscriptions, 0), least(10000, (
      select count(*) from (select from deliveries as w where w.gno = g.gno and w.pos > f.pos limit 10000) as w) + (
      select count(*) from (
        select from log_readers as r
        cross join lateral (
          select b.first_pos, b.event_ids from batches as b
          where b.first_pos > r.from_pos and (r.to_pos is null or b.first_pos <= r.to_pos)
            and b.first_pos >= coalesce((select p.first_pos from batches as p where p.first_pos <= f.pos + 1
              order by p.first_pos desc limit 1), 0)) as b
        cross join lateral unnest(b.event_ids) with ordinality as i(event_id, ord)
        where r.gno = g.gno and i.event_id is not null and b.first_pos + i.ord - 1 > f.pos limit 10000) as w)),
    coalesce(s.parked, 0), coalesce(s.failures, 0)
  from subscription_groups as g
  left join floors as f on f.gno = g.gno
  left join (
    select s.gno, count(*) as subscriptions, count(p.subscription_id) as parked, sum(f.failures)::bigint as failures
    from subscriptions as s left join parked_subscriptions as p on p.subscription_id = s.id
    left join subscription_failures as f on f.subscription_id = s.id
    where s.expired_at is null group by s.gno
  ) as s on s.gno = g.gno
  cross join (select d.pos from dispatcher_state as d order by d.id desc limit 1) as d;
end $$;

create or replace view group_status as select * from group_status_v1();

-- The last columns: events that the condition raised an error on, of late. They are in dead_letters.
create or replace view subscription_status as
select s.id, s.group_id, s.conditions_sql, s.params, s.expiry_interval, s.expired_at, greatest(a.last_active_at, (
    select max(c.last_active_at) from client_subscriptions as h join clients as c on c.id = h.client_id
    where h.subscription_id = s.id)) as last_active_at,
  p.at as parked_at, p.next_pos as parked_pos, p.event_id as parked_event, p.error as parked_error,
  p.resuming, f.failures, f.error as failed_error
from subscriptions as s
left join parked_subscriptions as p on p.subscription_id = s.id
left join subscription_failures as f on f.subscription_id = s.id
left join subscription_activity as a on a.subscription_id = s.id;

-- What is not matched with the others, and why. `behind`: positions that wait to be evaluated for it.
create view parked as
select p.subscription_id, s.group_id, s.conditions_sql, s.params, p.at, p.next_pos, p.event_id, p.error, p.resuming,
  d.pos - p.next_pos + 1 as behind
from parked_subscriptions as p join subscriptions as s on s.id = p.subscription_id
cross join (select pos from dispatcher_state order by id desc limit 1) as d;

-- The whole broker in one row, for metrics and the command line. `problem` is the first thing that somebody should look
-- at; null: nothing.
create function broker_status_v1(out groups bigint, out subscriptions bigint, out conditions bigint,
  out parked bigint, out resuming bigint, out failing bigint, out dead_letters bigint, out rejected bigint,
  out scheduled bigint, out overrun bigint, out problem text)
language plpgsql stable set search_path from current as $$
#variable_conflict use_column
begin
  select count(*), count(*) filter (where g.overrun_at is not null) into groups, overrun from subscription_groups as g;
  subscriptions := (select count(*) from subscriptions as s where s.expired_at is null);
  conditions := (select count(*) from conditions);
  select count(*) filter (where not p.resuming), count(*) filter (where p.resuming) into parked, resuming
    from parked_subscriptions as p;
  failing := (select count(*) from subscription_failures);
  dead_letters := (select count(*) from (select from dead_letters limit 10000) as d);
  rejected := (select count(*) from (select from rejected limit 10000) as r);
  scheduled := (select count(*) from (select from scheduled limit 10000) as s);
  problem := coalesce(
    (select format('conditions are not run: %s', o) from evaluation_objection() as o where o is not null
      and exists (select from conditions as c where c.evaluated)),
    (select format('subscription %s of the group %s is parked: %s', p.subscription_id, s.group_id, p.error)
      from parked_subscriptions as p join subscriptions as s on s.id = p.subscription_id
      where not p.resuming order by p.at limit 1),
    (select format('the group %s has lost positions up to %s', g.id, g.overrun_to) from subscription_groups as g
      where g.overrun_at is not null and group_cursor(g.gno) < g.overrun_to limit 1),
    (select format('a scheduled event was set aside: %s', r.error) from rejected as r order by r.id limit 1));
end $$;

create function broker_status(out groups bigint, out subscriptions bigint, out conditions bigint,
  out parked bigint, out resuming bigint, out failing bigint, out dead_letters bigint, out rejected bigint,
  out scheduled bigint, out overrun bigint, out problem text)
language sql stable set search_path from current as $$
  select * from broker_status_v1()
$$;
