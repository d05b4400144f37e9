-- What SQL users see of the log, and how they write to it.
--
--   select * from kafka.messages where topic = 'orders';
--   select * from kafka.read('orders', 0, 1000, 50);             -- fifty messages from offset 1000 on: by index
--   select * from kafka.message('orders', 0, 1000);
--   select kafka.produce('orders', 'key', 'value', '[["trace", "abc"], ["raw", {"base64": "AP8="}]]');
--
-- Headers are an array of pairs, because keys may come twice. A value is a string if it is text, null if it is null,
-- and an object with its base64 otherwise.

-- A zigzag number, and where it ends.
create function kafka.varint_at(data bytea, at int, out value bigint, out stop int)
language plpgsql immutable parallel safe as $$
declare
  byte int;
  shift int := 0;
begin
  value := 0;
  stop := at;
  loop
    byte := get_byte(data, stop);
    stop := stop + 1;
    value := value | ((byte & 127)::bigint << shift);
    exit when byte < 128;
    shift := shift + 7;
  end loop;
  value := ((value >> 1) & 9223372036854775807) # (-(value & 1));
end $$;

-- Bytes as text if they are some that JSON can hold, else as base64.
create function kafka.header_value(data bytea) returns jsonb language plpgsql immutable parallel safe as $$
begin
  if data is null then
    return 'null'::jsonb;
  end if;
  if position('\x00'::bytea in data) = 0 then
    return to_jsonb(convert_from(data, 'UTF8'));
  end if;
  return jsonb_build_object('base64', translate(encode(data, 'base64'), E'\n', ''));
exception when character_not_in_repertoire or untranslatable_character then
  return jsonb_build_object('base64', translate(encode(data, 'base64'), E'\n', ''));
end $$;

create function kafka.headers_at(data bytea, at int) returns jsonb language plpgsql immutable parallel safe as $$
declare
  headers jsonb := '[]';
  count bigint;
  size bigint;
  name text;
begin
  select value, stop into count, at from kafka.varint_at(data, at);
  for i in 1 .. count loop
    select value, stop into size, at from kafka.varint_at(data, at);
    name := convert_from(substring(data from at + 1 for size::int), 'UTF8');
    at := at + size::int;
    select value, stop into size, at from kafka.varint_at(data, at);
    headers := headers || jsonb_build_array(jsonb_build_array(
      name, kafka.header_value(case when size >= 0 then substring(data from at + 1 for size::int) end)));
    at := at + greatest(size, 0)::int;
  end loop;
  return headers;
end $$;

-- One row for every record of a batch, computed from their positions. `plain` are the records without compression.
create function kafka.records(base_offset bigint, base_global bigint, base_ts bigint, append_ts bigint, key_at int[],
  value_len int[], key_len int[], ts_delta int[], ts_far bigint[], off_delta int[], plain bytea)
returns table ("offset" bigint, global_offset bigint, key bytea, value bytea, headers jsonb, "timestamp" timestamptz)
language sql immutable rows 100 as $$
  select base_offset + r.delta, base_global + r.delta,
    case when r.key_len >= 0 then substring(plain from r.key_at + 1 for r.key_len) end,
    case when r.value_len >= 0 then substring(plain from r.value_at + 1 for r.value_len) end,
    case when get_byte(plain, r.value_at + greatest(r.value_len, 0)) = 0 then '[]'::jsonb
      else kafka.headers_at(plain, r.value_at + greatest(r.value_len, 0)) end,
    -- Within what PostgreSQL can say; -1 means that there is none.
    case when r.ts <> -1 and r.ts between -62135596800000 and 9000000000000000
      then to_timestamp(r.ts / 1000.0::double precision) end
  from (
    select coalesce(u.off_delta, u.ord - 1) as delta, u.key_at, coalesce(u.key_len, -1) as key_len, u.value_len,
      -- A value follows its length, which is a zigzag varint.
      u.key_at + greatest(u.key_len, 0) + case
        when u.value_len < 64 then 1 when u.value_len < 8192 then 2 when u.value_len < 1048576 then 3
        when u.value_len < 134217728 then 4 else 5 end as value_at,
      coalesce(append_ts, base_ts + coalesce(u.ts_delta, u.ts_far, 0)) as ts
    from unnest(key_at, value_len, key_len, ts_delta, ts_far, off_delta)
      with ordinality as u(key_at, value_len, key_len, ts_delta, ts_far, off_delta, ord)
  ) as r
$$;

-- Topics with the setting headgate.sql=false are not in it.
create view kafka.messages as
select topics.name as topic, parts.index as partition, r."offset", r.global_offset, r.key, r.value, r.headers,
  r."timestamp"
from kafka.topics as topics
join kafka.partitions as parts on parts.topic_id = topics.id
cross join lateral (
  -- "offset 0" keeps this apart, so that the bytes of a batch are fetched once and not for every record.
  select b.*, case when attrs & 8 <> 0 then max_ts end as append_ts,
    coalesce(b.plain, substring(b.data from 62)) as bytes
  from kafka.batches as b
  where b.part_id = parts.part_id and b.last_offset >= parts.log_start_offset and attrs & 32 = 0
  offset 0
) as b
cross join lateral kafka.records(b.base_offset, b.base_global, b.base_ts, b.append_ts, b.key_at, b.value_len, b.key_len,
  b.ts_delta, b.ts_far, b.off_delta, b.bytes) as r
where r."offset" >= parts.log_start_offset;

create function kafka.read(topic text, partition int, from_offset bigint, n int)
returns table ("offset" bigint, global_offset bigint, key bytea, value bytea, headers jsonb, "timestamp" timestamptz)
language plpgsql stable rows 100 as $$
#variable_conflict use_column
declare
  part kafka.partitions;
  span record;
  room int := n;
  got int;
begin
  select p.* into part from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
    where t.name = read.topic and p.index = read.partition;
  from_offset := greatest(from_offset, part.log_start_offset);
  for span in select * from kafka.spans_from(part.part_id, from_offset) loop
    exit when room <= 0;
    return query
    select r.* from (
      select b.*, case when attrs & 8 <> 0 then max_ts end as append_ts,
        coalesce(b.plain, substring(b.data from 62)) as bytes
      from kafka.batches as b
      where b.segment_id = span.segment_id and b.part_id = part.part_id
        and b.last_offset >= from_offset and b.last_offset < span.stop and attrs & 32 = 0
      order by b.last_offset
      offset 0
    ) as b
    cross join lateral kafka.records(b.base_offset, b.base_global, b.base_ts, b.append_ts, b.key_at, b.value_len,
      b.key_len, b.ts_delta, b.ts_far, b.off_delta, b.bytes) as r
    where r."offset" >= from_offset
    limit room;
    get diagnostics got = row_count;
    room := room - got;
  end loop;
end $$;

create function kafka.message(topic text, partition int, "offset" bigint)
returns table ("offset" bigint, global_offset bigint, key bytea, value bytea, headers jsonb, "timestamp" timestamptz)
language sql stable rows 1 as $$
  select * from kafka.read($1, $2, $3, 1) as r where r."offset" = $3
$$;

create function kafka.are_headers(headers jsonb) returns boolean language sql immutable as $$
  select jsonb_typeof(headers) = 'array' and not exists (
    select from jsonb_array_elements(case jsonb_typeof(headers) when 'array' then headers else '[]' end) as pair
    where not coalesce(
      jsonb_typeof(pair) = 'array' and jsonb_array_length(case jsonb_typeof(pair) when 'array' then pair else '[]' end) = 2
      and jsonb_typeof(pair -> 0) = 'string'
      and (jsonb_typeof(pair -> 1) in ('string', 'null') or jsonb_typeof(pair -> 1 -> 'base64') = 'string'), false))
$$;

-- Messages that SQL has written in its own transactions; a gateway moves what is committed into the log.
create table kafka.inbox (
  id bigint generated always as identity primary key,
  topic_id int not null,
  partition int,                             -- null: by the key, or anywhere
  key bytea,
  value bytea,
  headers jsonb not null default '[]' check (kafka.are_headers(headers)),
  written_at timestamptz not null default clock_timestamp()
);

-- Part of the caller's transaction: the message is sent if, and only if, that commits.
create function kafka.produce(topic text, key bytea, value bytea, headers jsonb default '[]', partition int default null)
returns bigint language plpgsql as $$
#variable_conflict use_variable
declare
  found kafka.topics;
  parts int;
  new_id bigint;
  size int := coalesce(length(key), 0) + coalesce(length(value), 0) + length(headers::text);
begin
  select * into found from kafka.topics as t where t.name = topic;
  if found.id is null then
    raise exception 'there is no topic %', topic using errcode = 'undefined_object',
      hint = 'Create it first, with any Kafka client.';
  end if;
  select count(*) into parts from kafka.partitions as p where p.topic_id = found.id;
  if partition not between 0 and parts - 1 then
    raise exception 'there is no partition %: the topic % has %', partition, topic, parts
      using errcode = 'invalid_parameter_value';
  end if;
  if key is null and found.configs ->> 'cleanup.policy' like '%compact%' then
    raise exception 'a message of the compacted topic % must have a key', topic using errcode = 'not_null_violation';
  end if;
  if size + 100 > coalesce((found.configs ->> 'max.message.bytes')::int, 1048588) then
    raise exception 'a message of % bytes is too large for the topic %', size, topic
      using errcode = 'program_limit_exceeded', hint = 'Raise max.message.bytes of the topic.';
  end if;
  insert into kafka.inbox (topic_id, partition, key, value, headers)
    values (found.id, partition, key, value, headers) returning id into new_id;
  return new_id;
end $$;

create function kafka.produce(topic text, key text, value text, headers jsonb default '[]', partition int default null)
returns bigint language sql as $$
  select kafka.produce(topic, convert_to(key, 'UTF8'), convert_to(value, 'UTF8'), headers, partition)
$$;
