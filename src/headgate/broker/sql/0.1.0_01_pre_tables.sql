-- The tables of the broker. They are in the first schema of the search path, as are all names in these files.
--
-- An event's id is its place in the order of publishing; a position (pos) is its place in the order of delivery.
-- No clock has a say in either: transactions may commit late, and clocks may go back.

create table config (
  key text primary key,
  value text not null
);

create function check_config() returns trigger language plpgsql set search_path from current as $$
begin
  if new.key = 'poll_chunk_size' and new.value::int not between 1 and 100000 then
    raise exception 'poll_chunk_size must be between 1 and 100000' using errcode = 'invalid_parameter_value';
  end if;
  if new.key <> 'poll_chunk_size' and new.value::interval <= interval '0' then
    raise exception '% must be more than nothing', new.key using errcode = 'invalid_parameter_value';
  end if;
  if new.key = 'partition_interval' and new.value::interval < interval '1 minute' then
    raise exception 'partition_interval must be at least one minute' using errcode = 'invalid_parameter_value';
  end if;
  return new;
end $$;
create trigger check_config before insert or update on config for each row execute function check_config();

insert into config (key, value) values
  ('partition_retention_period', '60 minutes'),  -- what all groups have read is kept for at least so long
  ('partition_interval', '30 minutes'),          -- how much time one partition holds
  ('future_intervals_to_create', '3 hours'),     -- how much of the future has partitions
  ('poll_chunk_size', '10000'),                  -- events per poll, and per read that does not say
  ('max_lag', '7 days'),                         -- a group that is further behind is overrun, and told so
  ('lease', '15 seconds'),                       -- a reader that is silent for longer loses its group
  ('maintenance_lock_timeout', '200 milliseconds'),
  ('dedup_retention', '1 day');                  -- how long the keys of publish_once are remembered

create function config_value(of_key text) returns text language sql stable set search_path from current as $$
  select value from config where key = of_key
$$;

-- CACHE 1, always: with a cache, ids would not follow the order of the calls.
create sequence event_ids as bigint minvalue 0 start 0 cache 1;
select setval('event_ids', 0);  -- as if the one before the first had been used: so it is after every roll, too

create table events (
  id bigint not null default nextval('event_ids'),
  xid xid8 not null default pg_current_xact_id(),   -- the transaction, also below savepoints: decides what is new
  at timestamptz not null default clock_timestamp(),
  subscription_id int,                              -- a direct event: for this subscription and no other
  topic text not null check (length(topic) between 1 and 255),
  payload jsonb not null,
  metadata jsonb,
  retry jsonb check (retry is null or coalesce(      -- for one handler only: {of, handler, attempt}
    jsonb_typeof(retry -> 'of') = 'number' and jsonb_typeof(retry -> 'handler') = 'string'
    and jsonb_typeof(retry -> 'attempt') = 'number' and subscription_id is not null, false)),
  primary key (id)
) partition by range (id);
-- Not (xid, id): that one is taken for ranges of ids, too, and is slow at them.
create index events_xid on events (xid);

-- Events whose time has not come. Ids that create_event_id made are negative and come here through `events_door`.
create table scheduled (
  id bigint generated always as identity,
  due_at timestamptz not null,
  subscription_id int,
  topic text not null check (length(topic) between 1 and 255),
  payload jsonb not null,
  metadata jsonb,
  retry jsonb,
  error text,                                       -- why it is tried again
  primary key (due_at, id)
) with (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

create table events_door partition of events for values from (minvalue) to (0);

create function take_at_door() returns trigger language plpgsql set search_path from current as $$
begin
  insert into scheduled (due_at, subscription_id, topic, payload, metadata, retry)
  values (to_timestamp(0) - new.id * interval '1 microsecond', new.subscription_id, new.topic, new.payload,
    new.metadata, new.retry);
  return null;
end $$;
create trigger take_at_door before insert on events_door for each row execute function take_at_door();

-- Partition n of a table holds the ids, or positions, from n * 2^32 on. It is closed by going on with the next one's
-- first number, so that time decides what a partition holds and no lock is needed to begin one.
create table partitions (
  parent text not null,
  number bigint not null,
  opened_at timestamptz,
  closed_at timestamptz,
  done pg_snapshot,      -- all of its events had been dispatched in this state,
  done_pos bigint,       -- at positions up to this one
  primary key (parent, number)
);

-- The distinct conditions of subscriptions. Not unique: two transactions that bring the same one must not wait for
-- each other. `expression` is what PostgreSQL understood, and what is executed.
create table conditions (
  id int generated always as identity primary key,
  source text not null,
  source_key bytea not null,
  expression text not null,
  route text check (route in ('topic', 'topics')),  -- the key of params that holds what topics it can match
  parked_at timestamptz,                            -- it raised an error and is not evaluated any more,
  parked_pos bigint,                                -- from this position on
  parked_event bigint,
  parked_error text
);
create index conditions_source on conditions (source_key);

create table subscription_groups (
  id text primary key check (length(id) between 1 and 255),
  gno int generated always as identity unique,
  created_at timestamptz not null default now(),
  max_lag interval,            -- null: as configured
  owner text,                  -- who reads, until
  lease_until timestamptz,
  epoch bigint not null default 0,  -- raised whenever the owner changes
  overrun_at timestamptz,      -- it lagged too far: these positions are gone
  overrun_from bigint,
  overrun_to bigint
) with (fillfactor = 50);

-- How far groups have come. Appended, the newest counts: a row that is updated all the time gets slow to read while an
-- old snapshot is held anywhere.
create table group_cursors (
  gno int not null references subscription_groups (gno) on delete cascade,
  id bigint generated always as identity,
  pos bigint not null,
  at timestamptz not null default clock_timestamp(),
  primary key (gno, id)
);

create table subscriptions (
  id int generated always as identity primary key,
  group_id text not null references subscription_groups (id) on delete cascade,
  conditions_sql text not null default 'true',
  params jsonb not null default '{}' check (jsonb_typeof(params) = 'object'),
  expiry_interval interval check (expiry_interval > interval '0'),
  created_at timestamptz not null default now(),
  expired_at timestamptz,      -- not matched any more; who asks for it again gets this row back, and its backlog
  gno int not null,
  cond_id int not null references conditions (id),
  identity bytea not null,     -- sha256 of the condition and the parameters
  unique (gno, identity)
);
create index subscriptions_cond on subscriptions (cond_id) where expired_at is null;
create index subscriptions_params on subscriptions using gin (params jsonb_path_ops) with (fastupdate = off);

-- What topics a subscription can match, if its condition has a route and it has not expired.
create table subscription_topics (
  topic text not null,
  cond_id int not null,
  subscription_id int not null references subscriptions (id) on delete cascade,
  gno int not null,
  primary key (topic, cond_id, subscription_id)
);
create index subscription_topics_of on subscription_topics (subscription_id);

-- Who uses expiring subscriptions. A client's life is one narrow row, however many subscriptions it holds.
create table clients (
  id text primary key,
  last_active_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);
create table client_subscriptions (
  client_id text not null references clients (id) on delete cascade,
  subscription_id int not null references subscriptions (id) on delete cascade,
  primary key (client_id, subscription_id)
);
create index client_subscriptions_of on client_subscriptions (subscription_id);
create table subscription_activity (
  subscription_id int primary key references subscriptions (id) on delete cascade,
  last_active_at timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Groups whose subscriptions have changed since the dispatcher last looked.
create table subscription_changes (
  gno int not null
) with (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0);

-- How far the dispatcher is. Appended, too; the newest row counts.
create table dispatcher_state (
  id bigint primary key,
  pos bigint not null,
  done pg_snapshot not null,   -- all that it sees has been dispatched
  target pg_snapshot,          -- what is being dispatched in order of ids; null: nothing
  low_id bigint,
  id_done bigint,
  system_id bigint not null,   -- of the cluster to which these transactions belong
  timeline int not null,
  at timestamptz not null default clock_timestamp()
);
insert into dispatcher_state (id, pos, done, system_id, timeline)
select 1, 0, '1:1:'::pg_snapshot, s.system_identifier, c.timeline_id
from pg_control_system() as s, pg_control_checkpoint() as c;

-- What goes to a group: one row for an event, whatever the number of its subscriptions that match.
create table deliveries (
  gno int not null,
  pos bigint not null,
  event_id bigint not null,
  subscription_ids int[] not null,
  primary key (gno, pos)
) partition by range (pos);

-- A group whose one subscription matches all events reads the log itself: the dispatcher notes the order of events
-- once for all such groups. Direct events are null in it.
create table batches (
  first_pos bigint primary key,
  event_ids bigint[] not null
) partition by range (first_pos);
create table log_readers (
  gno int not null references subscription_groups (gno) on delete cascade,
  subscription_id int not null,
  from_pos bigint not null,    -- it reads what is after this position,
  to_pos bigint,               -- up to this one; null: it still does
  primary key (gno, from_pos)
);
create unique index log_readers_now on log_readers (gno) where to_pos is null;

create table dead_letters (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  group_id text not null,
  subscription_id int not null,
  handler text not null,
  attempts int not null,
  error text,
  event_id bigint not null,
  topic text not null,
  payload jsonb not null,
  metadata jsonb
);

create table event_keys (
  topic text not null,
  key text not null,
  event_id bigint,
  at timestamptz not null default now(),
  primary key (topic, key)
);
create index event_keys_at on event_keys (at);
