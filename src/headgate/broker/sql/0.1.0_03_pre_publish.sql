-- Publishing: part of the caller's transaction, and hardly more than an INSERT.
--
--   select publish('order.created', '{"id": 1}');
--   select publish_many(array['a', 'b'], array['1', '2']::jsonb[]);                -- in this order
--   select publish('reminder', '{}', due_at => now() + interval '1 year');
--   select send(42, 'hello', '{}');                                           -- to one subscription
--   insert into events (id, topic, payload) values (create_event_id(now() + interval '1 minute'), 'later', '{}');

-- An id to insert an event with that is due at a time: a negative one, which is not kept. `rand` is of no use here and
-- accepted because there are programs that give it.
create function create_event_id(ts timestamptz, rand bigint default 0) returns bigint
language sql immutable set search_path from current as $$
  select -greatest(1, (extract(epoch from ts) * 1000000)::bigint)
$$;

create function publish_v1(topics text[], payloads jsonb[], metadatas jsonb[] default null) returns setof bigint
language plpgsql set search_path from current as $$
begin
  return query
  insert into events (topic, payload, metadata)
  select u.topic, u.payload, u.metadata
  from unnest(topics, payloads, metadatas) with ordinality as u(topic, payload, metadata, ord)
  order by u.ord
  returning id;
end $$;

create function send_v1(to_subscriptions int[], topics text[], payloads jsonb[], metadatas jsonb[] default null)
returns setof bigint language plpgsql set search_path from current as $$
declare
  missing int;
begin
  select to_id into missing from unnest(to_subscriptions) as to_id
    where not exists (select from subscriptions as s where s.id = to_id) limit 1;
  if found then
    raise exception 'there is no subscription %', missing using errcode = 'undefined_object';
  end if;
  return query
  insert into events (subscription_id, topic, payload, metadata)
  select u.to_id, u.topic, u.payload, u.metadata
  from unnest(to_subscriptions, topics, payloads, metadatas) with ordinality as u(to_id, topic, payload, metadata, ord)
  order by u.ord
  returning id;
end $$;

-- Events for later, however much later. The ids are those of the schedule.
create function schedule_v1(due_ats timestamptz[], topics text[], payloads jsonb[], metadatas jsonb[] default null,
  to_subscriptions int[] default null)
returns setof bigint language sql set search_path from current as $$
  insert into scheduled (due_at, topic, payload, metadata, subscription_id)
  select u.due_at, u.topic, u.payload, u.metadata, u.to_id
  from unnest(due_ats, topics, payloads, metadatas, to_subscriptions) with ordinality
    as u(due_at, topic, payload, metadata, to_id, ord)
  order by u.ord
  returning id
$$;

-- Publishes unless the topic has had an event of this key; the id is that of the event which is there.
create function publish_once_v1(of_topic text, of_key text, payload jsonb, metadata jsonb default null) returns bigint
language plpgsql set search_path from current as $$
declare
  found_id bigint;
begin
  insert into event_keys (topic, key) values (of_topic, of_key) on conflict do nothing;
  if found then
    insert into events (topic, payload, metadata)
      values (of_topic, publish_once_v1.payload, publish_once_v1.metadata) returning id into found_id;
    update event_keys as k set event_id = found_id where k.topic = of_topic and k.key = of_key;
  else
    select k.event_id into found_id from event_keys as k where k.topic = of_topic and k.key = of_key;
  end if;
  return found_id;
end $$;

create function publish_many(topics text[], payloads jsonb[], metadatas jsonb[] default null) returns setof bigint
language sql set search_path from current as $$
  select publish_v1(topics, payloads, metadatas)
$$;

create function publish(topic text, payload jsonb, metadata jsonb default null, due_at timestamptz default null)
returns bigint language plpgsql set search_path from current as $$
declare
  new_id bigint;
begin
  if due_at is null then
    insert into events (topic, payload, metadata) values (publish.topic, publish.payload, publish.metadata)
      returning id into new_id;
    return new_id;
  end if;
  return schedule_v1(array[due_at], array[topic], array[payload], array[metadata]);
end $$;

create function publish_once(topic text, key text, payload jsonb, metadata jsonb default null) returns bigint
language sql set search_path from current as $$
  select publish_once_v1(topic, key, payload, metadata)
$$;

create function send_many(subscription_ids int[], topics text[], payloads jsonb[], metadatas jsonb[] default null)
returns setof bigint language sql set search_path from current as $$
  select send_v1(subscription_ids, topics, payloads, metadatas)
$$;

create function send(subscription_id int, topic text, payload jsonb, metadata jsonb default null,
  due_at timestamptz default null)
returns bigint language plpgsql set search_path from current as $$
begin
  if due_at is null then
    return send_v1(array[subscription_id], array[topic], array[payload], array[metadata]);
  end if;
  return schedule_v1(array[due_at], array[topic], array[payload], array[metadata], array[subscription_id]);
end $$;
