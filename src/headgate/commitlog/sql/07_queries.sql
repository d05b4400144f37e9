-- What people ask first, answered by index however long a topic is. The view `kafka.messages` computes its rows from
-- whole batches, so PostgreSQL cannot see that an order or a condition on them is one on the batches.
--
--   select * from kafka.newest('orders');                             -- the last ten messages, the newest first
--   select * from kafka.since('orders', now() - interval '1 hour');   -- from a time on
--   select * from kafka.after('orders', 123456, 100);                 -- behind a global offset: to poll with

create type kafka.message_of_topic as (
  partition int, "offset" bigint, global_offset bigint, key bytea, value bytea, headers jsonb, "timestamp" timestamptz);

-- Where the first batch is that contains or follows an offset. Null: there is none.
create function kafka.place_from(of_part int, first bigint,
  out base_offset bigint, out last_offset bigint, out base_global bigint)
language plpgsql stable as $$
declare
  span record;
begin
  for span in select * from kafka.spans_from(of_part, first) loop
    select b.base_offset, b.last_offset, b.base_global into base_offset, last_offset, base_global
    from kafka.batches as b
    where b.segment_id = span.segment_id and b.part_id = of_part
      and b.last_offset >= first and b.last_offset < span.stop
    order by b.last_offset limit 1;
    exit when base_offset is not null;
  end loop;
end $$;

-- The offset of a partition from which on messages are behind a global offset. Both only rise: it is found by halving.
create function kafka.offset_after(of_part int, global bigint) returns bigint language plpgsql stable as $$
declare
  low bigint;
  high bigint;
  middle bigint;
  found record;
begin
  select p.log_start_offset, p.next_offset into low, high from kafka.partitions as p where p.part_id = of_part;
  while low < high loop
    middle := low + (high - low) / 2;
    select * into found from kafka.place_from(of_part, middle);
    -- Within a batch both rise together.
    if found.base_offset is null or found.base_global + greatest(middle - found.base_offset, 0) > global then
      high := middle;
    else
      low := least(found.last_offset, found.base_offset + global - found.base_global) + 1;
    end if;
  end loop;
  return low;
end $$;

-- The newest messages of a partition: from further and further back, because compaction leaves gaps.
create function kafka.newest_of(topic text, partition int, n int) returns setof kafka.message_of_topic
language plpgsql stable rows 10 as $$
#variable_conflict use_variable
declare
  part kafka.partitions;
  first bigint;
  back bigint := n;
begin
  select p.* into part from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
    where t.name = topic and p.index = partition;
  loop
    first := greatest(part.next_offset - back, part.log_start_offset);
    exit when first <= part.log_start_offset
      or (select count(*) from kafka.read(topic, partition, first, n)) >= n;
    back := back * 4;
  end loop;
  return query select partition, r.* from kafka.read(topic, partition, first, least(back, 2147483647)::int) as r
    order by r."offset" desc limit n;
end $$;

create function kafka.newest(topic text, n int default 10, partition int default null)
returns setof kafka.message_of_topic language sql stable rows 10 as $$
  select r.* from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
  cross join lateral kafka.newest_of(t.name, p.index, newest.n) as r
  where t.name = newest.topic and (newest.partition is null or p.index = newest.partition)
  order by r.global_offset desc limit newest.n
$$;

create function kafka.after(topic text, global_offset bigint, n int default 1000)
returns setof kafka.message_of_topic language sql stable rows 1000 as $$
  select p.index, r.* from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
  cross join lateral kafka.read(t.name, p.index, kafka.offset_after(p.part_id, after.global_offset), after.n) as r
  where t.name = after.topic
  order by r.global_offset limit after.n
$$;

-- Messages are in the order in which they were written, which need not be that of their times: those before the time
-- are left out, and there may be fewer than n for it.
create function kafka.since(topic text, start timestamptz, n int default 1000)
returns setof kafka.message_of_topic language sql stable rows 1000 as $$
  select p.index, r.* from kafka.topics as t join kafka.partitions as p on p.topic_id = t.id
  cross join lateral (
    select a.base_offset, a.last_offset - a.base_offset + 1 as more
    from kafka.at_time(p.part_id, (extract(epoch from since.start) * 1000)::bigint, p.log_start_offset) as a) as a
  cross join lateral kafka.read(t.name, p.index, a.base_offset, (since.n + a.more)::int) as r
  where t.name = since.topic and r."timestamp" >= since.start
  order by r.global_offset limit since.n
$$;
