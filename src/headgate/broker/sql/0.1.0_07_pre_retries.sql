-- An event that a handler could not handle: again later, for this handler alone, or put aside.
--
-- A retry has a copy of the event, so it does not matter what has become of the log when its time comes. It comes as a
-- direct event, whose `retry` names the handler: {"of": id, "handler": name, "attempt": 2}.

-- Schedules another attempt of events, whose number is given. Events that are gone are left out; how many were not.
create function retry_v1(sid int, of_handler text, event_ids bigint[], attempt int, error text, delay interval)
returns int language plpgsql volatile set search_path from current as $$
declare
  written int;
begin
  insert into scheduled (due_at, subscription_id, topic, payload, metadata, retry, error)
  select clock_timestamp() + delay, sid, e.topic, e.payload, e.metadata,
    jsonb_build_object('of', coalesce((e.retry ->> 'of')::bigint, e.id), 'handler', of_handler,
      'attempt', retry_v1.attempt),
    retry_v1.error
  from unnest(event_ids) with ordinality as i(id, ord) join events as e on e.id = i.id
  order by i.ord;
  get diagnostics written = row_count;
  return written;
end $$;

-- Puts events aside for somebody to look at.
create function bury_v1(sid int, of_handler text, event_ids bigint[], after_attempts int, error text)
returns setof bigint language sql volatile set search_path from current as $$
  insert into dead_letters (group_id, subscription_id, handler, attempts, error, event_id, topic, payload, metadata)
  select coalesce((select s.group_id from subscriptions as s where s.id = sid), ''), sid, of_handler, after_attempts,
    bury_v1.error, coalesce((e.retry ->> 'of')::bigint, e.id), e.topic, e.payload, e.metadata
  from unnest(event_ids) with ordinality as i(id, ord) join events as e on e.id = i.id
  order by i.ord
  returning id
$$;

-- Gives dead letters to their handlers again, as the first attempt.
create function redrive_v1(ids bigint[]) returns int language plpgsql volatile set search_path from current as $$
declare
  written int;
begin
  with gone as (delete from dead_letters where id = any (ids) returning *)
  insert into scheduled (due_at, subscription_id, topic, payload, metadata, retry, error)
  select clock_timestamp(), g.subscription_id, g.topic, g.payload, g.metadata,
    jsonb_build_object('of', g.event_id, 'handler', g.handler, 'attempt', 1), g.error
  from gone as g order by g.id;
  get diagnostics written = row_count;
  return written;
end $$;

create function redrive(dead_letter_ids bigint[]) returns int language sql volatile set search_path from current as $$
  select redrive_v1(dead_letter_ids)
$$;
