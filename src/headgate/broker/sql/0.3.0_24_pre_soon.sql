-- Dispatching a few events soon: planning took longer than all else, so these plans are kept. A batch of any size may
-- want other plans than the last one had, and plans for what is there, as before.

alter function poll_for_events_v1(int) rename to dispatch_batch;

-- They inherit what the poll has chosen.
alter function dispatch_batch(int) reset plan_cache_mode;
alter function take_due(int) reset plan_cache_mode;
alter function next_batch_v2(dispatcher_state, int) reset plan_cache_mode;
alter function evaluate_batch(bigint[], bigint) reset plan_cache_mode;
alter function deliver_v2(bigint[], bigint, matched[], int[]) reset plan_cache_mode;

-- One round for all groups. `more`: call again at once, there is something waiting.
create function poll_for_events_v1(chunk int default null, out dispatched int, out delivered int, out more boolean)
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan as $$
begin
  select d.dispatched, d.delivered, d.more into dispatched, delivered, more from dispatch_batch(chunk) as d;
end $$;

-- With `few`, for at most a hundred. What is looked up then is looked up by index: scans are forbidden, lest one is kept
-- from when a table was empty.
create function poll_for_events_v1(chunk int, few boolean, out dispatched int, out delivered int, out more boolean)
language plpgsql volatile set search_path from current set plan_cache_mode = force_generic_plan
set enable_seqscan = off as $$
begin
  if few then
    select d.dispatched, d.delivered, d.more into dispatched, delivered, more
      from dispatch_batch(least(chunk, 100)) as d;
  else
    select p.dispatched, p.delivered, p.more into dispatched, delivered, more from poll_for_events_v1(chunk) as p;
  end if;
end $$;
