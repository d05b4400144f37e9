-- Rights for programs that do not own the schema. They call functions, which run with the rights of the schema's owner
-- and check what they are given; of tables, they may see and write a few columns.
--
--   select grant_usage('publisher', to_role => 'shop');
--   select grant_usage('consumer', to_role => 'mailer', groups => array['mailer']);
--   select grant_usage('observer', to_role => 'dashboard');

-- The functions that a part may call. All others are the owner's.
create function functions_of(of_part text) returns setof name language sql immutable set search_path from current as $$
  select f.name::name from (values
    ('publisher', 'cancel'), ('publisher', 'cancel_v1'), ('publisher', 'create_event_id'),
    ('publisher', 'begin_writing_v1'), ('publisher', 'end_writing_v1'), ('publisher', 'publish'),
    ('publisher', 'publish_many'), ('publisher', 'publish_once'), ('publisher', 'publish_once_v1'),
    ('publisher', 'publish_v1'), ('publisher', 'schedule_v1'), ('publisher', 'send'), ('publisher', 'send_many'),
    ('publisher', 'send_v1'),
    ('consumer', 'bury_v1'), ('consumer', 'bury_v2'), ('consumer', 'commit_stream_v1'),
    ('consumer', 'declare_handlers_v1'),
    ('consumer', 'group_cursor'), ('consumer', 'has_handler_elsewhere_v1'), ('consumer', 'heartbeat_v1'),
    ('consumer', 'hold_group_v1'), ('consumer', 'is_alive'), ('consumer', 'leave_v1'),
    ('consumer', 'maintain'), ('consumer', 'maintain_v1'), ('consumer', 'maintain_events_table'),
    ('consumer', 'note_live_v1'), ('consumer', 'open_stream_v1'), ('consumer', 'plan_stream_v1'),
    ('consumer', 'poll_for_events'), ('consumer', 'poll_for_events_v1'), ('consumer', 'read_next_events'), ('consumer', 'read_next_events_v1'),
    ('consumer', 'read_live_v1'), ('consumer', 'read_stream_v1'), ('consumer', 'read_stream_v2'),
    ('consumer', 'redrive'), ('consumer', 'redrive_v1'),
    ('consumer', 'release_group_v1'), ('consumer', 'resume_history_v1'), ('consumer', 'resume_stream_v1'),
    ('consumer', 'resume_stream_v2'), ('consumer', 'resume_subscription'),
    ('consumer', 'resume_subscription_v1'), ('consumer', 'retry_v1'), ('consumer', 'retry_v2'),
    ('consumer', 'seek'), ('consumer', 'seek_v1'), ('consumer', 'server_history'), ('consumer', 'set_group_cursor'),
    ('consumer', 'set_group_cursor_v1'), ('consumer', 'slot_of'),
    ('consumer', 'subscribe'), ('consumer', 'subscribe_v1'), ('consumer', 'unsubscribe'),
    ('consumer', 'unsubscribe_v1'),
    ('observer', 'broker_status'), ('observer', 'broker_status_v1'), ('observer', 'config_value'),
    ('observer', 'group_status_v1'), ('observer', 'next_positions')
  ) as f(part, name)
  where f.part = of_part or of_part = 'consumer' and f.part in ('publisher', 'observer')
$$;

-- What is allowed on tables, beside functions. The columns of publishers are those that nobody can cheat with. Those of
-- consumers are what programs of 0.2 look at; they are not for new ones.
create function columns_of(of_part text) returns table (privilege text, relation name, columns text)
language sql immutable set search_path from current as $$
  select c.privilege, c.relation::name, c.columns from (values
    ('publisher', 'insert', 'events', 'topic, payload, metadata, subscription_id'),
    ('publisher', 'insert', 'events_door', 'id, topic, payload, metadata, subscription_id'),
    ('publisher', 'select', 'events', 'id'),
    ('publisher', 'select', 'config', null), ('publisher', 'select', 'migrations', null),
    ('consumer', 'select', 'clients', null), ('consumer', 'insert', 'clients', 'id'),
    ('consumer', 'delete', 'clients', null),
    ('consumer', 'select', 'subscriptions', 'id, group_id, gno, expired_at'),
    ('consumer', 'select', 'subscription_groups', 'id, gno, overrun_from, overrun_to, seeks'),
    ('consumer', 'select', 'dispatcher_state', 'id, pos, system_id, timeline'),
    ('consumer', 'select', 'group_status', null),
    ('observer', 'select', 'archived_events', null), ('observer', 'select', 'batches', null), ('observer', 'select', 'client_subscriptions', null),
    ('observer', 'select', 'clients', null), ('observer', 'select', 'conditions', null),
    ('observer', 'select', 'config', null), ('observer', 'select', 'dead_letters', null),
    ('observer', 'select', 'deliveries', null), ('observer', 'select', 'dispatcher_state', null),
    ('observer', 'select', 'event_keys', null), ('observer', 'select', 'events', null),
    ('observer', 'select', 'group_cursors', null), ('observer', 'select', 'group_status', null),
    ('observer', 'select', 'histories', null), ('observer', 'select', 'log_readers', null), ('observer', 'select', 'migrations', null),
    ('observer', 'select', 'parked', null), ('observer', 'select', 'parked_subscriptions', null),
    ('observer', 'select', 'partitions', null), ('observer', 'select', 'rejected', null),
    ('observer', 'select', 'scheduled', null), ('observer', 'select', 'streams', null),
    ('observer', 'select', 'subscription_activity', null), ('observer', 'select', 'subscription_events', null),
    ('observer', 'select', 'subscription_failures', null), ('observer', 'select', 'subscription_groups', null),
    ('observer', 'select', 'subscription_patterns', null),
    ('observer', 'select', 'subscription_status', null), ('observer', 'select', 'subscription_topics', null),
    ('observer', 'select', 'subscriptions', null), ('observer', 'select', 'unread_events', null),
    ('observer', 'select', 'webhook_status', null), ('observer', 'select', 'writers', null)
  ) as c(part, privilege, relation, columns)
  where c.part = of_part or of_part = 'consumer' and c.part = 'publisher'
$$;

-- Functions that others may call run as the owner; nobody but the owner may call the rest.
create function secure_functions() returns void language plpgsql volatile set search_path from current as $$
declare
  one record;
begin
  for one in
    select p.oid::regprocedure as signature, p.prosecdef, p.proname in (
        select functions_of('consumer') except select 'slot_of') as is_open,
      pg_has_role(current_user, p.proowner, 'member') as is_ours
    from pg_proc as p where p.pronamespace = current_schema()::regnamespace
  loop
    continue when not one.is_ours;
    execute format('revoke execute on function %s from public', one.signature);
    if one.is_open and not one.prosecdef then
      execute format('alter function %s security definer', one.signature);
    end if;
  end loop;
end $$;

create or replace function revoke_usage(from_role name) returns void
language plpgsql volatile set search_path from current as $$
begin
  delete from parts where role = from_role;
  if exists (select from pg_roles where rolname = from_role) then
    execute format('revoke all on all tables in schema %I from %I', current_schema(), from_role);
    execute format('revoke all on all sequences in schema %I from %I', current_schema(), from_role);
    execute format('revoke all on all functions in schema %I from %I', current_schema(), from_role);
    execute format('revoke all on schema %I from %I', current_schema(), from_role);
  end if;
end $$;

-- `publisher` publishes now and later. `consumer` does that, subscribes, dispatches, reads, retries and maintains, for
-- all groups or for those that are named. `observer` only looks.
create function grant_usage(part text, to_role name, groups text[]) returns void
language plpgsql volatile set search_path from current as $$
declare
  one record;
begin
  if part not in ('publisher', 'consumer', 'observer') then
    raise exception 'there is no part %', part using errcode = 'invalid_parameter_value',
      hint = 'Choose publisher, consumer or observer.';
  end if;
  if groups is not null and part <> 'consumer' then
    raise exception 'groups are for consumers' using errcode = 'invalid_parameter_value';
  end if;
  execute format('grant usage on schema %I to %I', current_schema(), to_role);
  if part <> 'observer' then
    execute format('grant usage on sequence event_ids to %I', to_role);
  end if;
  for one in select * from columns_of(part) loop
    execute format('grant %s%s on %I to %I', one.privilege, ' (' || one.columns || ')', one.relation, to_role);
  end loop;
  for one in
    select p.oid::regprocedure as signature from pg_proc as p
    where p.pronamespace = current_schema()::regnamespace and p.proname in (select functions_of(part))
  loop
    execute format('grant execute on function %s to %I', one.signature, to_role);
  end loop;
  insert into parts (role, part, groups) values (to_role, grant_usage.part, grant_usage.groups)
    on conflict on constraint parts_pkey do update set groups = excluded.groups;
end $$;

create or replace function grant_usage(part text, to_role name) returns void
language sql volatile set search_path from current as $$
  select grant_usage(part, to_role, null)
$$;

do $$
begin
  execute format('revoke all on all tables in schema %I from public', current_schema());
end $$;
select set_conditions_role();
select secure_functions();

-- Who was granted something by the version before is granted what that is now.
do $$
declare
  one record;
begin
  for one in
    select r.rolname, case
      when has_table_privilege(r.oid, 'deliveries', 'insert') then 'consumer'
      when has_any_column_privilege(r.oid, 'events', 'insert') then 'publisher'
      else 'observer' end as part
    from pg_roles as r
    where r.oid in (
      select a.grantee from pg_class as c cross join lateral aclexplode(c.relacl) as a
      where c.oid in ('events'::regclass, 'group_status'::regclass) and a.grantee <> c.relowner)
      and r.rolname <> current_schema() || '_conditions'
      and not r.rolsuper and not pg_has_role(r.oid, current_user, 'member')
  loop
    perform revoke_usage(one.rolname);
    perform grant_usage(one.part, one.rolname);
  end loop;
end $$;
