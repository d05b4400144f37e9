-- What is parked, and how it goes on: polls evaluate what a subscription has missed, a piece at a time, before they
-- take the dispatcher's lock; the matches are delivered at new positions.
--
--   select * from parked;
--   select resume_subscription(7);                   -- try what it is parked for again
--   select resume_subscription(7, skip => true);     -- without the event that it is parked for

-- Events that were dispatched at a position or after it, in order; not those that were sent to one subscription.
create function dispatched_from(from_pos bigint, n int) returns table (pos bigint, event_id bigint)
language plpgsql stable set search_path from current set plan_cache_mode = force_custom_plan
set enable_seqscan = off set enable_bitmapscan = off as $$
begin
  return query
  select b.first_pos + i.ord - 1, i.event_id
  from batches as b cross join lateral unnest(b.event_ids) with ordinality as i(event_id, ord)
  where b.first_pos >= coalesce((select f.first_pos from batches as f where f.first_pos <= from_pos
      order by f.first_pos desc limit 1), 0)
    and b.first_pos + i.ord - 1 >= from_pos and i.event_id is not null
  order by b.first_pos, i.ord limit n;
end $$;

-- Which of some events match for one subscription, in their order. What the condition raises on is set aside.
create function evaluate_for(sid int, cond int, ids bigint[], positions bigint[]) returns bigint[]
language plpgsql volatile set search_path from current as $$
declare
  -- Ids rise within a batch, and not from one to the next: evaluation wants them in order.
  sorted bigint[] := array(select id from unnest(ids) as id order by id);
  found_ids bigint[] := '{}';
begin
  begin
    found_ids := array(select sorted[m.ord] from unnest(evaluate_v1(sorted, array[cond], array[sid], '{}')) as m);
    return array(select o.id from unnest(ids) with ordinality as o(id, ord) where o.id = any (found_ids) order by o.ord);
  exception when others then
    if sqlstate = 'HG003' then
      raise;
    end if;
  end;
  for at in 1 .. cardinality(ids) loop
    begin
      if cardinality(evaluate_v1(ids[at:at], array[cond], array[sid], '{}')) > 0 then
        found_ids := found_ids || ids[at];
      end if;
    exception when others then
      perform fail_condition(ids[at], sid, sqlerrm, positions[at]);
    end;
  end loop;
  return found_ids;
end $$;

-- What one resuming subscription has missed, as much as can be evaluated in half a second. The row stays locked.
create function evaluate_parked(out subscription_id int, out from_pos bigint, out up_to bigint, out event_ids bigint[],
  out cancelled boolean)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  p parked_subscriptions;
  cond int;
  ids bigint[];
  positions bigint[];
  done int := 0;
  began timestamptz := clock_timestamp();
begin
  cancelled := false;
  -- One that waits has missed nothing yet: to let it go on at once would bring it back to where it was cancelled.
  select * into p from parked_subscriptions where resuming and not (waits and next_pos > (
      select d.pos from dispatcher_state as d order by d.id desc limit 1))
    order by at limit 1 for update skip locked;
  if not found then
    return;
  end if;
  select s.cond_id into cond from subscriptions as s where s.id = p.subscription_id and s.expired_at is null;
  if not found then
    delete from parked_subscriptions as d where d.subscription_id = p.subscription_id;
    return;
  end if;
  select array_agg(d.event_id order by d.pos), array_agg(d.pos order by d.pos) into ids, positions
    from dispatched_from(p.next_pos, 10000) as d;
  event_ids := '{}';
  up_to := p.next_pos - 1;
  begin
    while done < coalesce(cardinality(ids), 0) and clock_timestamp() - began < interval '500 milliseconds' loop
      event_ids := event_ids
        || evaluate_for(p.subscription_id, cond, ids[done + 1:done + 50], positions[done + 1:done + 50]);
      done := least(done + 50, cardinality(ids));
      up_to := positions[done];
    end loop;
  exception
    when query_canceled then
      if clock_timestamp() - began < config_value('condition_time')::interval then
        raise;
      end if;
      perform park_subscription(p.subscription_id, p.next_pos, p.event_id, 'evaluation was cancelled: it took too long',
        false);
      cancelled := true;
      return;
    when sqlstate 'HG003' then
      perform park_subscription(p.subscription_id, p.next_pos, p.event_id, sqlerrm, false);
      return;
  end;
  subscription_id := p.subscription_id;
  from_pos := p.next_pos;
end $$;

-- Delivers what evaluate_parked found, for whoever holds the dispatcher's lock. True: there is more of it.
create function resume_step(sid int, from_pos bigint, up_to bigint, event_ids bigint[]) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  state dispatcher_state := last_state();
  group_no int;
begin
  select s.gno into group_no from subscriptions as s where s.id = sid;
  if found and cardinality(event_ids) > 0 then
    insert into deliveries (gno, pos, event_id, subscription_ids)
    select group_no, state.pos + i.ord, i.id, array[sid] from unnest(event_ids) with ordinality as i(id, ord)
    order by i.ord;
    state.pos := state.pos + cardinality(event_ids);
    perform append_state(state);
    perform tell(array[group_no], false);
  end if;
  -- It may have been parked again meanwhile, by what it failed on.
  update parked_subscriptions set next_pos = up_to + 1 where subscription_id = sid and next_pos <= up_to;
  if exists (select from dispatched_from(up_to + 1, 1)) then
    return exists (select from parked_subscriptions where subscription_id = sid and resuming);
  end if;
  delete from parked_subscriptions where subscription_id = sid and resuming;
  return false;
end $$;

-- False: it is not parked.
create function resume_subscription_v1(sid int, skip boolean) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  perform check_group(s.group_id) from subscriptions as s where s.id = sid;
  delete from subscription_failures where subscription_id = sid;
  update parked_subscriptions set resuming = true, next_pos = next_pos + skip::int where subscription_id = sid;
  return found;
end $$;

create function resume_subscription(subscription_id int, skip boolean default false) returns boolean
language sql volatile set search_path from current as $$
  select resume_subscription_v1(subscription_id, skip)
$$;

-- All subscriptions of a condition at once. A condition cannot be replaced any more: it may be others', too.
create or replace function resume_condition_v1(of_condition int, replacement text default null,
  skip boolean default false)
returns boolean language plpgsql volatile set search_path from current as $$
declare
  resumed int;
begin
  if replacement is not null then
    raise exception 'a condition is not replaced: it may be of others, too' using errcode = 'feature_not_supported',
      hint = 'Subscribe with another condition, and unsubscribe.';
  end if;
  select count(resume_subscription_v1(s.id, resume_condition_v1.skip)) into resumed
  from parked_subscriptions as p join subscriptions as s on s.id = p.subscription_id where s.cond_id = of_condition;
  if resumed = 0 then
    raise exception 'the condition % is not parked', of_condition using errcode = 'undefined_object';
  end if;
  return true;
end $$;

-- Gives dead letters to their handlers again, as the first attempt. What no handler has failed on, but the condition,
-- goes to the subscription as a direct event.
create or replace function redrive_v1(ids bigint[]) returns int
language plpgsql volatile set search_path from current as $$
declare
  written int;
begin
  perform check_group(d.group_id) from dead_letters as d where d.id = any (ids);
  with gone as (delete from dead_letters where id = any (ids) returning *)
  insert into scheduled (due_at, subscription_id, topic, payload, metadata, retry, error)
  select clock_timestamp(), g.subscription_id, g.topic, g.payload, g.metadata,
    case when g.handler <> '' then jsonb_build_object('of', g.event_id, 'handler', g.handler, 'attempt', 1) end, g.error
  from gone as g order by g.id;
  get diagnostics written = row_count;
  return written;
end $$;

-- As before; for one's own groups. Events that are gone are left out; how many were not.
create or replace function retry_v1(sid int, of_handler text, event_ids bigint[], attempt int, error text,
  delay interval)
returns int language plpgsql volatile set search_path from current as $$
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
  order by i.ord;
  get diagnostics written = row_count;
  return written;
end $$;

create or replace function bury_v1(sid int, of_handler text, event_ids bigint[], after_attempts int, error text)
returns setof bigint language plpgsql volatile set search_path from current as $$
begin
  perform check_group(s.group_id) from subscriptions as s where s.id = sid;
  return query
  insert into dead_letters (group_id, subscription_id, handler, attempts, error, event_id, topic, payload, metadata)
  select coalesce((select s.group_id from subscriptions as s where s.id = sid), ''), sid, of_handler, after_attempts,
    bury_v1.error, coalesce((e.retry ->> 'of')::bigint, e.id), e.topic, e.payload, e.metadata
  from unnest(event_ids) with ordinality as i(id, ord) join events as e on e.id = i.id
  order by i.ord
  returning id;
end $$;

create or replace function release_group_v1(of_group text, as_owner text) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  perform check_group(of_group);
  update subscription_groups set owner = null, lease_until = null, epoch = epoch + 1
    where id = of_group and owner = as_owner;
  return found;
end $$;
