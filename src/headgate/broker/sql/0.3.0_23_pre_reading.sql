-- Reading a few events costs less than planning how to: these plans are kept. Each of them is a walk along an index,
-- whatever the numbers are, so one plan fits all; scans are forbidden, lest one is kept from when a table was empty.

create function next_deliveries(of_gno int, after_pos bigint, n int) returns next_position[]
language plpgsql stable set search_path from current set plan_cache_mode = force_generic_plan
-- Young partitions have no statistics, and the planner likes to collect and sort them. Their indexes have the order.
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off as $$
begin
  return array(
    select row(d.pos, d.event_id, d.subscription_ids)::next_position from deliveries as d
    where d.gno = of_gno and d.pos > after_pos order by d.pos limit n);
end $$;

create or replace function next_positions(of_gno int, after_pos bigint, n int)
returns table (pos bigint, event_id bigint, subscription_ids int[])
language plpgsql stable set search_path from current as $$
begin
  return query select * from unnest(next_chunk(of_gno, after_pos, n));
end $$;

-- What is delivered to a group and what it reads from the log are at different positions.
create function next_chunk(of_gno int, after_pos bigint, n int) returns next_position[]
language plpgsql stable set search_path from current set plan_cache_mode = force_generic_plan
set enable_seqscan = off as $$
begin
  if not exists (select from log_readers as r where r.gno = of_gno and (r.to_pos is null or r.to_pos > after_pos)) then
    return next_deliveries(of_gno, after_pos, n);
  end if;
  return array(
    select u from unnest(next_deliveries(of_gno, after_pos, n) || next_in_log(of_gno, after_pos, n)) as u
    order by u.pos limit n);
end $$;

create or replace function read_next_events_v1(of_group text, after_pos bigint, n int, peek boolean, as_owner text)
returns table (id bigint, topic text, payload jsonb, metadata jsonb, subscription_ids int[], next_cursor bigint,
  pos bigint, at timestamptz, retry jsonb, gap int8range, epoch bigint)
language plpgsql volatile set search_path from current set plan_cache_mode = force_generic_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
  g subscription_groups;
  held bigint;
  start_pos bigint;
  chunk next_position[];
  last_pos bigint;
begin
  select * into g from subscription_groups where id = of_group;
  if not found then
    raise exception 'there is no group %', of_group using errcode = 'undefined_object',
      hint = 'A group begins with its first subscription.';
  end if;
  if peek then
    perform check_group(of_group);
  else
    held := hold_group_v1(of_group, coalesce(as_owner, owner_of(null)));
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
  chunk := next_chunk(g.gno, start_pos, coalesce(n, config_value('poll_chunk_size')::int));
  if cardinality(chunk) = 0 then
    return;
  end if;
  last_pos := chunk[cardinality(chunk)].pos;
  return query
  select c.event_id, e.topic, e.payload, e.metadata, c.subscription_ids, last_pos, c.pos, e.at, e.retry,
    case when e.id is null then int8range(c.pos, c.pos, '[]') end, held
  -- "offset 0" keeps this a look-up for each: a hash of the whole log would be the alternative.
  from unnest(chunk) as c left join lateral (select * from events as e where e.id = c.event_id offset 0) as e on true
  order by c.pos;
end $$;
