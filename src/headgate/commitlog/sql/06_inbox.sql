-- The way from SQL into the log, in large steps, and past rows that cannot go it.

-- As before, and the base64 must be some. In PL/pgSQL: a function of SQL would be parsed anew by every insert.
create or replace function kafka.are_headers(headers jsonb) returns boolean language plpgsql immutable as $$
begin
  return jsonb_typeof(headers) = 'array' and not exists (
    select from jsonb_array_elements(case jsonb_typeof(headers) when 'array' then headers else '[]' end) as pair
    where not coalesce(
      jsonb_typeof(pair) = 'array' and jsonb_array_length(case jsonb_typeof(pair) when 'array' then pair else '[]' end) = 2
      and jsonb_typeof(pair -> 0) = 'string'
      and (jsonb_typeof(pair -> 1) in ('string', 'null')
        or pair -> 1 ->> 'base64' ~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$'), false));
end $$;
alter table kafka.inbox drop constraint inbox_headers_check,
  add constraint inbox_headers_check check (headers = '[]' or kafka.are_headers(headers)) not valid;

-- Rows of the inbox that cannot be appended, with the reason. `kafka.retry_rejected` puts them back.
create table kafka.inbox_rejected (
  id bigint primary key,
  topic_id int not null,
  partition int,
  key bytea,
  value bytea,
  headers jsonb not null,
  written_at timestamptz not null,
  rejected_at timestamptz not null default clock_timestamp(),
  reason text not null
);

create function kafka.reject(of_id bigint, with_reason text) returns void language sql as $$
  with gone as (delete from kafka.inbox where id = of_id returning *)
  insert into kafka.inbox_rejected (id, topic_id, partition, key, value, headers, written_at, reason)
  select id, topic_id, partition, key, value, headers, written_at, with_reason from gone
  on conflict (id) do nothing
$$;

-- They come again, behind what waits now. Returns how many.
create function kafka.retry_rejected(ids bigint[] default null) returns bigint language sql as $$
  with back as (
    delete from kafka.inbox_rejected where ids is null or id = any (ids) returning *
  ), put as (
    insert into kafka.inbox (topic_id, partition, key, value, headers)
    select topic_id, partition, key, value, headers from back order by id returning 1
  )
  select count(*) from put
$$;

-- The oldest messages, as many as fit, out of the inbox. Times that Kafka cannot say become the present.
create function kafka.take_inbox(most_rows int, most_bytes bigint)
returns table (id bigint, topic_id int, partition int, key bytea, value bytea, headers text, written_ms bigint)
language sql as $$
  with oldest as materialized (
    select i.id, coalesce(length(i.key), 0) + coalesce(length(i.value), 0) + length(i.headers::text) + 100 as octets
    from kafka.inbox as i order by i.id limit most_rows
  ), fitting as materialized (
    select s.id from (select o.id, sum(o.octets) over (order by o.id) - o.octets as before from oldest as o) as s
    where s.before < most_bytes
  ), taken as (
    delete from kafka.inbox as i where i.id = any (array(select f.id from fitting as f)) returning i.*
  )
  select t.id, t.topic_id, t.partition, t.key, t.value, t.headers::text,
    (extract(epoch from case when t.written_at between '1970-01-01' and '9999-12-31' then t.written_at
      else clock_timestamp() end) * 1000)::bigint
  from taken as t order by t.id
$$;

-- What `kafka.produce` asks of a topic. Raises what is wrong.
create function kafka.outbox_topic(topic text, largest int, partition int, has_null_key boolean)
returns int language plpgsql stable as $$
#variable_conflict use_variable
declare
  found kafka.topics;
  parts int;
begin
  select * into found from kafka.topics as t where t.name = topic;
  if found.id is null then
    raise exception 'there is no topic %', topic using errcode = 'undefined_object',
      hint = 'Create it first, with any Kafka client.';
  end if;
  if partition is not null then
    select count(*) into parts from kafka.partitions as p where p.topic_id = found.id;
    if partition not between 0 and parts - 1 then
      raise exception 'there is no partition %: the topic % has %', partition, topic, parts
        using errcode = 'invalid_parameter_value';
    end if;
  end if;
  if has_null_key and found.configs ->> 'cleanup.policy' like '%compact%' then
    raise exception 'a message of the compacted topic % must have a key', topic using errcode = 'not_null_violation';
  end if;
  if largest + 100 > coalesce((found.configs ->> 'max.message.bytes')::int, 1048588) then
    raise exception 'a message of % bytes is too large for the topic %', largest, topic
      using errcode = 'program_limit_exceeded', hint = 'Raise max.message.bytes of the topic.';
  end if;
  return found.id;
end $$;

create or replace function kafka.produce(
  topic text, key bytea, value bytea, headers jsonb default '[]', partition int default null)
returns bigint language plpgsql as $$
#variable_conflict use_variable
declare
  size int := coalesce(length(key), 0) + coalesce(length(value), 0)
    + case when headers = '[]' then 2 else length(headers::text) end;
  new_id bigint;
begin
  insert into kafka.inbox (topic_id, partition, key, value, headers)
    values (kafka.outbox_topic(topic, size, partition, key is null), partition, key, value, headers)
    returning id into new_id;
  return new_id;
end $$;

-- Many messages in one call, in the order of the arrays; how many there were. `keys` and `headers` may be null as a whole.
create function kafka.produce_many(
  topic text, keys bytea[], "values" bytea[], headers jsonb[] default null, partition int default null)
returns bigint language plpgsql as $$
#variable_conflict use_variable
declare
  topic_id int;
  largest int;
  has_null_key boolean;
  count bigint;
begin
  if cardinality(keys) <> cardinality("values") or cardinality(headers) <> cardinality("values") then
    raise exception 'arrays of different lengths' using errcode = 'invalid_parameter_value';
  end if;
  select max(coalesce(length(m.key), 0) + coalesce(length(m.value), 0) + coalesce(length(m.headers::text), 2)),
      bool_or(m.key is null) into largest, has_null_key
    from unnest(keys, "values", headers) as m(key, value, headers);
  if largest is null then
    return 0;
  end if;
  topic_id := kafka.outbox_topic(topic, largest, partition, has_null_key);
  insert into kafka.inbox (topic_id, partition, key, value, headers)
    select topic_id, partition, m.key, m.value, coalesce(m.headers, '[]')
    from unnest(keys, "values", headers) with ordinality as m(key, value, headers, ord) order by m.ord;
  get diagnostics count = row_count;
  return count;
end $$;

create function kafka.produce_many(
  topic text, keys text[], "values" text[], headers jsonb[] default null, partition int default null)
returns bigint language sql as $$
  select kafka.produce_many(topic,
    (select array_agg(convert_to(k, 'UTF8') order by ord) from unnest(keys) with ordinality as u(k, ord)),
    (select coalesce(array_agg(convert_to(v, 'UTF8') order by ord), '{}') from unnest("values") with ordinality as u(v, ord)),
    headers, partition)
$$;
