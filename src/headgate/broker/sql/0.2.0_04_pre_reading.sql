-- Reading, faster: of the log, the part of a batch is taken that is wanted; and the ids of a chunk have bounds, so that
-- one partition is looked at and not all.

create type next_position as (pos bigint, event_id bigint, subscription_ids int[]);

-- The next positions of a group that reads the log itself: at least n, if there are so many.
create function next_in_log(of_gno int, after_pos bigint, n int) returns next_position[]
language plpgsql stable set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
declare
  batch record;
  sid int;
  at int;
  chunk next_position[] := '{}';
  next_first bigint := coalesce((select max(f.first_pos) from batches as f where f.first_pos <= after_pos), 0);
begin
  while cardinality(chunk) < n loop
    -- One at a time: who is far behind has many before it.
    select b.first_pos, b.event_ids into batch from batches as b
      where b.first_pos >= next_first order by b.first_pos limit 1;
    exit when not found;
    next_first := batch.first_pos + 1;
    select r.subscription_id into sid from log_readers as r
      where r.gno = of_gno and batch.first_pos > r.from_pos and (r.to_pos is null or batch.first_pos <= r.to_pos);
    continue when not found;
    at := greatest(after_pos - batch.first_pos + 2, 1);
    while cardinality(chunk) < n and at <= cardinality(batch.event_ids) loop
      chunk := chunk || array(
        select row(batch.first_pos + at + i.ord - 2, i.event_id, array[sid])::next_position
        from unnest(batch.event_ids[at:at + n - 1]) with ordinality as i(event_id, ord)
        where i.event_id is not null order by i.ord);
      at := at + n;
    end loop;
  end loop;
  return chunk;
end $$;

-- What is delivered to a group and what it reads from the log are at different positions.
create or replace function next_positions(of_gno int, after_pos bigint, n int)
returns table (pos bigint, event_id bigint, subscription_ids int[])
language plpgsql stable set search_path from current set plan_cache_mode = force_custom_plan
-- Young partitions have no statistics, and the planner likes to collect and sort them. Their indexes have the order.
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
  if not exists (select from log_readers as r where r.gno = of_gno and (r.to_pos is null or r.to_pos > after_pos)) then
    return query
    select d.pos, d.event_id, d.subscription_ids from deliveries as d
    where d.gno = of_gno and d.pos > after_pos order by d.pos limit n;
    return;
  end if;
  return query
  select u.pos, u.event_id, u.subscription_ids
  from (
    (select d.pos, d.event_id, d.subscription_ids from deliveries as d
      where d.gno = of_gno and d.pos > after_pos order by d.pos limit n)
    union all
    select * from unnest(next_in_log(of_gno, after_pos, n))
  ) as u order by u.pos limit n;
end $$;

create or replace function read_next_events_v1(of_group text, after_pos bigint, n int, peek boolean, as_owner text)
returns table (id bigint, topic text, payload jsonb, metadata jsonb, subscription_ids int[], next_cursor bigint,
  pos bigint, at timestamptz, retry jsonb, gap int8range, epoch bigint)
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  g subscription_groups;
  held bigint;
  start_pos bigint;
  chunk next_position[];
  first_id bigint;
  last_id bigint;
  last_pos bigint;
begin
  select * into g from subscription_groups where id = of_group;
  if not found then
    raise exception 'there is no group %', of_group using errcode = 'undefined_object',
      hint = 'A group begins with its first subscription.';
  end if;
  if not peek then
    held := hold_group_v1(of_group, owner_of(as_owner));
    if held is null then
      return;
    end if;
  end if;
  start_pos := coalesce(after_pos, group_cursor(g.gno));
  if start_pos < g.overrun_to then
    return query select null::bigint, null::text, null::jsonb, null::jsonb, null::int[], g.overrun_to, g.overrun_to,
      g.overrun_at, null::jsonb, int8range(greatest(start_pos + 1, g.overrun_from), g.overrun_to, '[]'), held;
    return;
  end if;
  select array_agg(row(p.pos, p.event_id, p.subscription_ids)::next_position), min(p.event_id), max(p.event_id),
    max(p.pos) into chunk, first_id, last_id, last_pos
  from next_positions(g.gno, start_pos, coalesce(n, config_value('poll_chunk_size')::int)) as p;
  return query
  select c.event_id, e.topic, e.payload, e.metadata, c.subscription_ids, last_pos, c.pos, e.at, e.retry,
    case when e.id is null then int8range(c.pos, c.pos, '[]') end, held
  -- "offset 0" keeps this a look-up for each: a hash of the whole log would be the alternative.
  from unnest(chunk) as c left join lateral (
    select * from events as e where e.id = c.event_id and e.id between first_id and last_id offset 0) as e on true
  order by c.pos;
end $$;
