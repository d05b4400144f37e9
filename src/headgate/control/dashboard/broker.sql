-- All that the page shows of the broker, as one object. Counts stop at ten thousand: more than that is "many".
select jsonb_build_object(
  'groups', (select coalesce(jsonb_agg(g order by g.behind desc, g.group_id), '[]') from (
    select s.group_id, s.subscriptions, s.behind, s.owner, s.overrun_to, (
        select extract(epoch from clock_timestamp() - e.at)
        from subscription_groups as g
        cross join lateral next_positions(g.gno, greatest(s.cursor, s.overrun_to), 1) as n
        join events as e on e.id = n.event_id where g.id = s.group_id) as oldest_s
    from (select * from group_status order by group_id limit 100) as s) as g),
  'group_count', (select count(*) from subscription_groups),
  'subscription_count', (select count(*) from subscriptions where expired_at is null),
  'subscriptions', (select coalesce(jsonb_agg(s order by s.parked_at, s.failures desc nulls last, s.id desc), '[]') from (
    select s.id, s.group_id, left(s.conditions_sql, 200) as condition, left(nullif(s.params, '{}')::text, 200) as params,
      s.parked_at, s.resuming, s.failures, extract(epoch from now() - s.last_active_at) as active_s,
      (select count(*) from (select from subscription_topics as t where t.subscription_id = s.id limit 1000) as t) as topics
    from subscription_status as s where s.id in (
      (select p.subscription_id from parked_subscriptions as p order by p.at desc limit 20)
      union (select f.subscription_id from subscription_failures as f limit 20)
      union (select n.id from subscriptions as n where n.expired_at is null order by n.id desc limit 50))) as s),
  'parked', (select coalesce(jsonb_agg(p), '[]') from (
    select subscription_id, group_id, conditions_sql as source, error, event_id as event,
      extract(epoch from now() - at) as age_s
    from parked order by at desc limit 20) as p),
  'dead_letter_count', (select count(*) from (select from dead_letters limit 10000) as d),
  'dead_letters', (select coalesce(jsonb_agg(d), '[]') from (
    select id, group_id, topic, attempts, left(error, 200) as error, extract(epoch from now() - at) as age_s
    from dead_letters order by id desc limit 5) as d),
  'scheduled_count', (select count(*) from (select from scheduled limit 10000) as s),
  'next_due_s', (select extract(epoch from min(due_at) - now()) from scheduled),
  'dispatch', (select jsonb_build_object('pos', d.pos, 'age_s', extract(epoch from clock_timestamp() - d.at),
      'waiting', (select count(*) from (select from unread_events limit 10000) as u))
    from dispatcher_state as d order by d.id desc limit 1),
  'webhooks', (select coalesce(jsonb_agg(w order by w.name), '[]') from (
    select name, address, enabled, behind, retrying, dead_letters from webhook_status order by name limit 50) as w),
  'events', (select coalesce(jsonb_agg(e order by e.id desc), '[]') from (
    select id, topic, left(payload::text, 120) as payload, extract(epoch from clock_timestamp() - at) as age_s
    from events order by id desc limit 10) as e)
)
