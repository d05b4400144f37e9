-- Tables and settings of 0.3. What programs of the version before use is locked in the order in which a poll and a
-- subscription take it, so that none of them waits for us while we wait for it.

lock table events in share row exclusive mode;
lock table scheduled, conditions, subscription_topics, dead_letters, writers in access exclusive mode;

-- What settings there are, and what counts where one is missing: a deleted row must not silently stop anything.
create function config_default(of_key text) returns text language sql immutable set search_path from current as $$
  select case of_key
    when 'partition_retention_period' then '60 minutes'
    when 'partition_interval' then '30 minutes'
    when 'future_intervals_to_create' then '3 hours'
    when 'poll_chunk_size' then '10000'
    when 'max_lag' then '7 days'
    when 'lease' then '15 seconds'
    when 'maintenance_lock_timeout' then '200 milliseconds'
    when 'dedup_retention' then '1 day'
    when 'dead_letter_retention' then '30 days'
    when 'writer_retention' then '1 year'
    when 'condition_time' then '20 milliseconds'
    when 'condition_failures' then '1000'
    when 'archive_retention' then '0 seconds'
  end
$$;

create or replace function config_value(of_key text) returns text
language sql stable set search_path from current as $$
  select coalesce((select value from config where key = of_key), config_default(of_key))
$$;

create or replace function check_config() returns trigger language plpgsql set search_path from current as $$
begin
  if config_default(new.key) is null then
    raise exception 'there is no setting %', new.key using errcode = 'invalid_parameter_value',
      hint = 'The settings are those of the table config after an installation.';
  end if;
  if new.key = 'poll_chunk_size' and new.value::int not between 1 and 100000 then
    raise exception 'poll_chunk_size must be between 1 and 100000' using errcode = 'invalid_parameter_value';
  end if;
  if new.key = 'condition_failures' and new.value::int < 1 then
    raise exception 'condition_failures must be at least 1' using errcode = 'invalid_parameter_value';
  end if;
  if new.key = 'archive_retention' and new.value::interval < interval '0' then
    raise exception 'archive_retention must not be less than nothing' using errcode = 'invalid_parameter_value';
  end if;
  if new.key not in ('poll_chunk_size', 'condition_failures', 'archive_retention')
    and new.value::interval <= interval '0'
  then
    raise exception '% must be more than nothing', new.key using errcode = 'invalid_parameter_value';
  end if;
  if new.key = 'partition_interval' and new.value::interval < interval '1 minute' then
    raise exception 'partition_interval must be at least one minute' using errcode = 'invalid_parameter_value';
  end if;
  return new;
end $$;

-- Rows that a version before let in, and that nothing ever used.
delete from config where config_default(key) is null;
insert into config (key, value)
select key, config_default(key)
from unnest(array['dead_letter_retention', 'writer_retention', 'condition_time', 'condition_failures',
  'archive_retention']) as key
on conflict do nothing;

-- Who calls, also from inside of functions that run with the rights of their owner.
create function caller() returns name language sql stable set search_path from current as $$
  select coalesce(nullif(current_setting('role', true), 'none'), session_user)::name
$$;

-- Who may do what, as granted by grant_usage. Of a consumer, the groups that are its own; null: all of them.
create table parts (
  role name not null,
  part text not null check (part in ('publisher', 'consumer', 'observer')),
  groups text[],
  primary key (role, part)
);

alter table scheduled add column made_by name;  -- who may cancel it, beside the owner of the schema
alter table writers add column made_by name;    -- who writes under this name; null: whoever comes first
-- Not for what is there: that is set aside when it is due.
alter table scheduled
  add check (isfinite(due_at)) not valid,
  add check (retry is null or coalesce(
    jsonb_typeof(retry -> 'of') = 'number' and jsonb_typeof(retry -> 'handler') = 'string'
    and jsonb_typeof(retry -> 'attempt') = 'number' and subscription_id is not null, false)) not valid;

-- What was due and could not become an event, with the reason.
create table rejected (
  id bigint generated always as identity primary key,
  at timestamptz not null default clock_timestamp(),
  error text not null,
  scheduled_id bigint not null,
  due_at timestamptz not null,
  subscription_id int,
  topic text,
  payload jsonb,
  metadata jsonb,
  retry jsonb
);

-- `evaluated`: the topic does not decide alone. `topics`: what an event must have for its topic, if the text says so.
alter table conditions add column evaluated boolean not null default true, add column topics text[];
alter table conditions drop constraint conditions_route_check;
alter table conditions add check (route in ('topic', 'topics', 'literal', 'patterns'));
alter table subscription_topics add column evaluated boolean not null default true;
create index dead_letters_subscription on dead_letters (subscription_id);
create index dead_letters_at on dead_letters (at);

-- Subscriptions that are not matched with the others, from a position on: too slow, or failing too often. What they
-- have not seen is kept for them. `resuming`: polls evaluate it for them, a piece at a time.
create table parked_subscriptions (
  subscription_id int primary key,
  at timestamptz not null default clock_timestamp(),
  next_pos bigint not null,
  event_id bigint,
  error text not null,
  resuming boolean not null default false,
  waits boolean not null default false              -- until what it is parked for has been dispatched without it
);

-- Events that a condition raised an error on are in dead_letters; here is how many there were of late.
create table subscription_failures (
  subscription_id int primary key,
  failures bigint not null,
  at timestamptz not null default clock_timestamp(),
  event_id bigint not null,
  error text not null
) with (fillfactor = 50);
