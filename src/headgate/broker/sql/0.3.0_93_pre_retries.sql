-- An event that was sent to one subscription is tried again, or put aside, for that one alone: who may act for a group
-- of its own must not get another's events by failing on them.

create or replace function retry_v1(sid int, of_handler text, event_ids bigint[], attempt int, error text,
  delay interval)
returns int language plpgsql volatile security definer set search_path from current set jit = off as $$
declare
  written int;
begin
  perform check_group(s.group_id) from subscriptions as s where s.id = sid;
  insert into scheduled (due_at, subscription_id, topic, payload, metadata, retry, error)
  select clock_timestamp() + delay, sid, e.topic, e.payload, e.metadata,
    jsonb_build_object('of', coalesce((e.retry ->> 'of')::bigint, e.id), 'handler', of_handler,
      'attempt', retry_v1.attempt),
    retry_v1.error
  from unnest(event_ids) with ordinality as i(id, ord) join events as e on e.id = i.id
  where e.subscription_id is null or e.subscription_id = sid
  order by i.ord;
  get diagnostics written = row_count;
  return written;
end $$;

create or replace function bury_v1(sid int, of_handler text, event_ids bigint[], after_attempts int, error text)
returns setof bigint language plpgsql volatile security definer set search_path from current set jit = off as $$
begin
  perform check_group(s.group_id) from subscriptions as s where s.id = sid;
  return query
  insert into dead_letters (group_id, subscription_id, handler, attempts, error, event_id, topic, payload, metadata)
  select coalesce((select s.group_id from subscriptions as s where s.id = sid), ''), sid, of_handler, after_attempts,
    bury_v1.error, coalesce((e.retry ->> 'of')::bigint, e.id), e.topic, e.payload, e.metadata
  from unnest(event_ids) with ordinality as i(id, ord) join events as e on e.id = i.id
  where e.subscription_id is null or e.subscription_id = sid
  order by i.ord
  returning id;
end $$;
