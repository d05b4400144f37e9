-- Doors for those who do not speak SQL: streams for listeners that come and go, and webhooks.

-- A stream is a group with one subscription to topics, which all listeners of these topics share. They only peek, each
-- from the position it has come to. What was dispatched after `born_pos` has been matched without a break.
create table streams (
  group_id text primary key references subscription_groups (id) on delete cascade,
  born_pos bigint not null
);

-- Opens the stream of some topics, or keeps it open: it ends when nobody has called this for as long as `expiry`.
create function open_stream_v1(of_topics text[], expiry interval, out group_id text, out gno int, out born_pos bigint,
  out last_pos bigint)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  wanted jsonb := jsonb_build_object('topics',
    (select jsonb_agg(distinct u collate "C" order by u collate "C") from unnest(of_topics) as u));
  of_group text := 'stream:' || left(encode(sha256(convert_to(wanted::text, 'UTF8')), 'hex'), 32);
  is_open boolean := exists (
    select from streams as t join subscriptions as s on s.group_id = t.group_id
    where t.group_id = of_group and s.expired_at is null);
begin
  if not is_open then
    -- Nothing is dispatched while it begins, so that its first position is exact.
    perform pg_advisory_xact_lock('dispatcher_state'::regclass::oid::int, 1);
    is_open := exists (
      select from streams as t join subscriptions as s on s.group_id = t.group_id
      where t.group_id = of_group and s.expired_at is null);
  end if;
  perform subscribe_v1(of_group, 's.params @> jsonb_build_object(''topics'', ARRAY[e.topic])', wanted, expiry, null);
  if not is_open then
    -- Nobody waits longer for what a stream has not read than the stream itself lasts.
    update subscription_groups set max_lag = expiry where id = of_group;
    insert into streams (group_id, born_pos)
      select of_group, d.pos from dispatcher_state as d order by d.id desc limit 1
      on conflict (group_id) do update set born_pos = excluded.born_pos;
  end if;
  select g.id, g.gno, t.born_pos, d.pos into group_id, gno, born_pos, last_pos
  from streams as t join subscription_groups as g on g.id = t.group_id
  cross join (select s.pos from dispatcher_state as s order by s.id desc limit 1) as d
  where g.id = of_group;
end $$;

-- From where a listener that has seen everything up to a position can go on. Any other position than its own: what is
-- between them cannot be had any more, or the position was never ours.
create function resume_stream_v1(of_group text, after_pos bigint) returns bigint
language sql stable set search_path from current as $$
  select case when after_pos > d.pos then d.pos
    else greatest(after_pos, t.born_pos, (select min(p.number) << 32 from partitions as p where p.parent = 'deliveries'))
    end
  from streams as t cross join (select pos from dispatcher_state order by id desc limit 1) as d
  where t.group_id = of_group
$$;

-- What comes next on a stream. If there is nothing, one row without a topic says up to which position that is so. With
-- `gap_from`, the positions from there up to this one are gone.
create function read_stream_v1(of_group text, after_pos bigint, n int)
returns table (pos bigint, topic text, payload text, gap_from bigint)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  -- Before the reading: what is dispatched in between must not be passed over.
  last_pos bigint := (select d.pos from dispatcher_state as d order by d.id desc limit 1);
begin
  return query select r.pos, r.topic, r.payload::text, lower(r.gap)
    from read_next_events_v1(of_group, after_pos, n, true, null) as r;
  if not found and last_pos > after_pos then
    return query select last_pos, null::text, null::text, null::bigint;
  end if;
end $$;

-- Where the events of a subscription are posted to. Each has a group of its own, so that none waits for another. The
-- secret is for nobody's eyes but the owner's: the role of conditions, observers and consumers have no rights here.
create table webhooks (
  id int generated always as identity primary key,
  name text not null unique check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$'),
  subscription_id int not null unique references subscriptions (id) on delete cascade,
  -- No user and password: they would be shown with the host.
  url text not null check (length(url) <= 2000 and url ~ '^https?://[^/?#@[:space:]]+([/?][^#[:space:]]*)?$'),
  secret text not null check (length(secret) between 8 and 1000),
  headers jsonb not null default '{}' check (jsonb_typeof(headers) = 'object'),
  retries_s double precision[] not null default '{1,10,60,300,1800}'
    check (cardinality(retries_s) <= 50 and 0 <= all (retries_s)),
  max_items int not null default 100 check (max_items between 1 and 1000),
  enabled boolean not null default true,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now(),
  sending_upto bigint          -- a batch up to here was being sent: after a crash, it is made of the same events
) with (fillfactor = 50);

-- Adds a webhook, or changes the one of this name; it goes on where it was.
create function register_webhook_v1(of_name text, conditions text, with_params jsonb, to_url text, with_secret text,
  with_headers jsonb default '{}', retry_after_s double precision[] default '{1,10,60,300,1800}',
  items int default 100)
returns int language plpgsql volatile set search_path from current as $$
declare
  old_sid int := (select subscription_id from webhooks where name = of_name);
  sid int := subscribe_v1('webhook:' || of_name, conditions, with_params, null, null);
  webhook int;
begin
  insert into webhooks (name, subscription_id, url, secret, headers, retries_s, max_items)
    values (of_name, sid, to_url, with_secret, with_headers, retry_after_s, items)
    on conflict (name) do update set subscription_id = sid, url = to_url, secret = with_secret,
      headers = with_headers, retries_s = retry_after_s, max_items = items, updated_at = clock_timestamp()
    returning id into webhook;
  if old_sid <> sid then
    update scheduled set subscription_id = sid where subscription_id = old_sid;
    update dead_letters set subscription_id = sid where subscription_id = old_sid;
    perform unsubscribe_v1(old_sid);
  end if;
  perform pg_notify(current_schema() || '_webhooks', '');
  return webhook;
end $$;

-- Removes it with what waits for it. Its dead letters stay.
create function remove_webhook_v1(of_name text) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  if not exists (select from webhooks where name = of_name) then
    return false;
  end if;
  delete from scheduled where subscription_id = (select subscription_id from webhooks where name = of_name);
  delete from subscription_groups where id = 'webhook:' || of_name;
  perform pg_notify(current_schema() || '_webhooks', '');
  return true;
end $$;

-- What is to be sent next, for whoever gets the lease of its group.
create function next_webhook_batch_v1(of_webhook int, as_owner text)
returns table (id bigint, topic text, payload text, retry jsonb, pos bigint, gap int8range, epoch bigint)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  w webhooks;
begin
  select * into w from webhooks where id = of_webhook and enabled;
  if not found then
    return;
  end if;
  return query
  with batch as materialized (
    select * from read_next_events_v1('webhook:' || w.name, null, w.max_items, false, as_owner)
  ), last as (
    select coalesce(max(pos) filter (where pos <= w.sending_upto), max(pos)) as pos from batch
  ), noted as (
    update webhooks set sending_upto = last.pos from last
    where webhooks.id = w.id and last.pos is distinct from w.sending_upto and last.pos is not null
  )
  select b.id, b.topic, b.payload::text, b.retry, b.pos, b.gap, b.epoch
  from batch as b join last on b.pos <= last.pos order by b.pos;
end $$;

-- For operators: without secrets, and of the address no more than the host, because the rest may be one.
create view webhook_status as
select w.name, w.subscription_id, substring(w.url from '^https?://[^/?#]+') as address, s.conditions_sql, s.params,
  w.retries_s, w.max_items, w.enabled, w.created_at, w.updated_at, g.behind,
  (select count(*) from scheduled as d where d.subscription_id = w.subscription_id) as retrying,
  (select count(*) from dead_letters as d where d.subscription_id = w.subscription_id) as dead_letters
from webhooks as w join subscriptions as s on s.id = w.subscription_id
join group_status as g on g.group_id = s.group_id;
