-- Rights for programs that do not own the schema. Functions run with the rights of their caller, so a program can do
-- with SQL what it can do with functions, and no more.
--
--   select grant_usage('publisher', to_role => 'shop');
--   select grant_usage('consumer', to_role => 'mailer');
--   select grant_usage('observer', to_role => 'dashboard');

-- Whichever client is on duty maintains, and that makes and drops tables: so it is done as their owner.
alter function maintain_v1(timestamptz) security definer;
revoke execute on function maintain_v1(timestamptz) from public;

-- `publisher` publishes now and later. `consumer` subscribes, dispatches, reads, retries and maintains. `observer` only
-- looks.
create function grant_usage(part text, to_role name) returns void language plpgsql set search_path from current as $$
declare
  here name := current_schema();
  -- By name: not every table is for everybody's eyes.
  visible text := 'config, migrations, events, scheduled, partitions, conditions, subscription_groups, group_cursors,'
    ' subscriptions, subscription_topics, clients, client_subscriptions, subscription_activity, subscription_changes,'
    ' dispatcher_state, deliveries, batches, log_readers, dead_letters, event_keys, writers, unread_events,'
    ' subscription_events, group_status, subscription_status';
begin
  if part not in ('publisher', 'consumer', 'observer') then
    raise exception 'there is no part %', part using errcode = 'invalid_parameter_value',
      hint = 'Choose publisher, consumer or observer.';
  end if;
  execute format('grant usage on schema %I to %I', here, to_role);
  if part = 'observer' then
    execute format('grant select on %s to %I', visible, to_role);
    return;
  end if;
  execute format('grant usage on sequence event_ids to %I', to_role);
  execute format('grant insert, select on events, scheduled, event_keys, writers to %I', to_role);
  execute format('grant update on event_keys, writers to %I', to_role);
  execute format('grant select on config, migrations, subscriptions to %I', to_role);
  if part = 'consumer' then
    execute format('grant select on %s to %I', visible, to_role);
    execute format('grant insert, update, delete on conditions, subscription_groups, group_cursors, subscriptions,'
      ' subscription_topics, clients, client_subscriptions, subscription_activity, subscription_changes,'
      ' dispatcher_state, deliveries, batches, log_readers, scheduled, dead_letters to %I', to_role);
    execute format('grant usage on all sequences in schema %I to %I', here, to_role);
    execute format('grant execute on function maintain_v1(timestamptz) to %I', to_role);
  end if;
end $$;

-- How many events wait for a group, up to ten thousand. Positions are of all groups and have gaps, so they do not tell.
create or replace view group_status as
select g.id as group_id, group_cursor(g.gno) as cursor, d.pos as last_pos, g.owner, g.lease_until, g.epoch,
  g.overrun_at, g.overrun_from, g.overrun_to,
  (select count(*) from subscriptions as s where s.gno = g.gno and s.expired_at is null) as subscriptions,
  (select count(*) from next_positions(g.gno, greatest(group_cursor(g.gno), g.overrun_to), 10000)) as behind
from subscription_groups as g cross join (select pos from dispatcher_state order by id desc limit 1) as d;
