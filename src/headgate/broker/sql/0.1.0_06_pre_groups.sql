-- Groups read what is theirs, one reader at a time, and say how far they have come.
--
--   select * from read_next_events('mailer');
--   select set_group_cursor('mailer', cursor => 17, release_lock => true);
--
-- A reader holds a lease, not a lock: it works through poolers, and ends by itself when its holder is dead. The epoch
-- is raised whenever the holder changes, so that one that was taken for dead cannot speak for the group any more.

-- Who asks, if it does not say.
create function owner_of(given text) returns text language sql stable set search_path from current as $$
  select coalesce(given, 'backend ' || pg_backend_pid())
$$;

create function group_cursor(of_gno int) returns bigint language sql stable set search_path from current as $$
  select pos from group_cursors where gno = of_gno order by id desc limit 1
$$;

-- Takes the group or keeps it, as reading does; who takes long to handle what it has read calls this in between.
-- Null: another one has it. Writes only when half of the lease is over.
create function hold_group_v1(of_group text, as_owner text) returns bigint
language plpgsql volatile set search_path from current as $$
declare
  g subscription_groups;
  lease interval := config_value('lease')::interval;
begin
  select * into g from subscription_groups where id = of_group;
  if g.owner = as_owner and g.lease_until > clock_timestamp() + lease / 2 then
    return g.epoch;
  end if;
  if g.owner <> as_owner and g.lease_until > clock_timestamp() then
    return null;
  end if;
  select * into g from subscription_groups where id = of_group for update skip locked;
  if not found or g.owner <> as_owner and g.lease_until > clock_timestamp() then
    return null;
  end if;
  update subscription_groups set owner = as_owner, lease_until = clock_timestamp() + lease,
    epoch = epoch + (owner is distinct from as_owner)::int
    where id = of_group returning epoch into g.epoch;
  return g.epoch;
end $$;

-- The next n positions of a group: from what was delivered to it, and from the log if it reads that. Stable, so that
-- it sees what its caller's query sees: a younger snapshot would have positions whose events are not there yet.
create function next_positions(of_gno int, after_pos bigint, n int)
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
  select u.pos, min(u.event_id), array_agg(s.id order by s.id)
  from (
    (select d.pos, d.event_id, d.subscription_ids from deliveries as d
      where d.gno = of_gno and d.pos > after_pos order by d.pos limit n)
    union all
    (select b.first_pos + i.ord - 1, i.event_id, array[r.subscription_id]
      from batches as b
      cross join lateral unnest(b.event_ids) with ordinality as i(event_id, ord)
      join log_readers as r
        on r.gno = of_gno and b.first_pos > r.from_pos and (r.to_pos is null or b.first_pos <= r.to_pos)
      where b.first_pos >= coalesce((select max(f.first_pos) from batches as f where f.first_pos <= after_pos), 0)
        and b.first_pos + i.ord - 1 > after_pos and i.event_id is not null
      order by b.first_pos, i.ord limit n)
  ) as u cross join lateral unnest(u.subscription_ids) as s(id)
  group by u.pos order by u.pos limit n;
end $$;

-- The next events of a group, from the stored cursor or the given one. Nothing moves until set_group_cursor is called.
-- A row with a gap says that positions are gone: all that is known of them are their numbers.
create function read_next_events_v1(of_group text, after_pos bigint, n int, peek boolean, as_owner text)
returns table (id bigint, topic text, payload jsonb, metadata jsonb, subscription_ids int[], next_cursor bigint,
  pos bigint, at timestamptz, retry jsonb, gap int8range, epoch bigint)
language plpgsql volatile set search_path from current set plan_cache_mode = force_custom_plan as $$
#variable_conflict use_column
declare
  g subscription_groups;
  held bigint;
  start_pos bigint;
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
  return query
  with chunk as materialized (
    select * from next_positions(g.gno, start_pos, coalesce(n, config_value('poll_chunk_size')::int))
  )
  select c.event_id, e.topic, e.payload, e.metadata, c.subscription_ids, (select max(pos) from chunk), c.pos, e.at,
    e.retry, case when e.id is null then int8range(c.pos, c.pos, '[]') end, held
  -- "offset 0" keeps this a look-up for each: a hash of the whole log would be the alternative.
  from chunk as c left join lateral (select * from events as e where e.id = c.event_id offset 0) as e on true
  order by c.pos;
end $$;

-- How far a group has come; forward only. Refused if the group has another reader by now.
create function set_group_cursor_v1(of_group text, new_pos bigint, release boolean, as_owner text, of_epoch bigint)
returns bigint language plpgsql volatile set search_path from current as $$
declare
  g subscription_groups;
  old_pos bigint;
  last_pos bigint;
begin
  select * into g from subscription_groups where id = of_group for update;
  if not found then
    raise exception 'there is no group %', of_group using errcode = 'undefined_object';
  end if;
  if g.owner <> owner_of(as_owner) or g.epoch <> of_epoch then
    raise exception 'the group % has another reader', of_group using errcode = 'HG001',
      hint = 'Whoever reads must say how far it is before its lease ends; what it read will be read again.';
  end if;
  select pos into last_pos from dispatcher_state order by id desc limit 1;
  if new_pos > last_pos then
    raise exception 'there is no position % yet', new_pos using errcode = 'invalid_parameter_value';
  end if;
  old_pos := group_cursor(g.gno);
  if new_pos > old_pos or old_pos is null then
    insert into group_cursors (gno, pos) values (g.gno, new_pos);
  end if;
  if release then
    update subscription_groups set owner = null, lease_until = null, epoch = epoch + 1 where id = of_group;
  end if;
  return greatest(new_pos, old_pos);
end $$;

-- Gives a group back, so that the next one need not wait for the end of the lease.
create function release_group_v1(of_group text, as_owner text) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  update subscription_groups set owner = null, lease_until = null, epoch = epoch + 1
    where id = of_group and owner = as_owner;
  return found;
end $$;

-- Moves a group anywhere, also back; whoever reads it has to begin again.
create function seek_v1(of_group text, to_pos bigint) returns void
language plpgsql volatile set search_path from current as $$
declare
  g subscription_groups;
begin
  update subscription_groups set owner = null, lease_until = null, epoch = epoch + 1
    where id = of_group returning * into g;
  if not found then
    raise exception 'there is no group %', of_group using errcode = 'undefined_object';
  end if;
  insert into group_cursors (gno, pos)
    select g.gno, least(to_pos, pos) from dispatcher_state order by id desc limit 1;
end $$;

create function read_next_events(gid text, cursor bigint default null, chunk_size int default null,
  peek boolean default false, owner text default null)
returns table (id bigint, topic text, payload jsonb, metadata jsonb, subscription_ids int[], next_cursor bigint,
  pos bigint, at timestamptz, retry jsonb, gap int8range, epoch bigint)
language sql volatile set search_path from current as $$
  select * from read_next_events_v1(gid, cursor, chunk_size, peek, owner)
$$;

create function set_group_cursor(gid text, cursor bigint, release_lock boolean default false, owner text default null,
  epoch bigint default null)
returns bigint language sql volatile set search_path from current as $$
  select set_group_cursor_v1(gid, cursor, release_lock, owner, epoch)
$$;

create function seek(gid text, cursor bigint) returns void language sql volatile set search_path from current as $$
  select seek_v1(gid, cursor)
$$;
