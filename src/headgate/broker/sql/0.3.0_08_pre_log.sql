-- Groups that read the log: many small batches at once, and any position that a bigint can be.

-- A partition at a time: a plan for one is made in a fraction of what a plan for a hundred takes.
create or replace function next_in_log(of_gno int, after_pos bigint, n int) returns next_position[]
language plpgsql stable set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off set enable_sort = off set enable_hashjoin = off
set enable_mergejoin = off as $$
declare
  after bigint := least(after_pos, 1::bigint << 62);  -- so that there is a next one to any
  chunk next_position[] := '{}';
  part next_position[];
  last_part bigint := (select d.pos >> 32 from dispatcher_state as d order by d.id desc limit 1);
  -- The batch that the position is in may have begun before it.
  start_pos bigint := coalesce((select f.first_pos from batches as f where f.first_pos <= after + 1
    and f.first_pos >= (after >> 32) << 32 order by f.first_pos desc limit 1), greatest(after, 0));
  end_pos bigint;
begin
  while start_pos >> 32 <= last_part and cardinality(chunk) < n loop
    end_pos := ((start_pos >> 32) + 1) << 32;
    -- Set-returning functions in a list hand out one element at a time, so that the limit ends them; in FROM, a batch
    -- would be taken apart as a whole. The order is that of the innermost query.
    part := array(
      select row(x.first_pos + x.skipped + x.ord - 1, x.event_id, array[x.subscription_id])::next_position
      from (
        select b.first_pos, b.skipped, b.subscription_id, unnest(b.ids) as event_id,
          generate_series(1, cardinality(b.ids)) as ord
        from (
          select b.first_pos, greatest(after - b.first_pos + 1, 0) as skipped, r.subscription_id,
            b.event_ids[greatest(least(after - b.first_pos + 2, 200000), 1)::int:] as ids
          from batches as b join log_readers as r
            on r.gno = of_gno and b.first_pos > r.from_pos and (r.to_pos is null or b.first_pos <= r.to_pos)
          where b.first_pos >= start_pos and b.first_pos < end_pos
          order by b.first_pos) as b
      ) as x
      where x.event_id is not null limit n - cardinality(chunk));
    chunk := chunk || part;
    start_pos := coalesce((select min(p.number) << 32 from partitions as p
      where p.parent = 'batches' and p.number >= end_pos >> 32), end_pos);
  end loop;
  return chunk;
end $$;
