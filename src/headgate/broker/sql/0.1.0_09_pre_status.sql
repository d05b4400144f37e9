-- What operators look at, and who may do what.

-- Committed and not yet dispatched.
create view unread_events as
select e.* from events as e cross join (select * from dispatcher_state order by id desc limit 1) as d
where e.xid >= pg_snapshot_xmin(d.done) and not pg_visible_in_snapshot(e.xid, d.done)
  and not (d.target is not null and e.id <= d.id_done and pg_visible_in_snapshot(e.xid, d.target));

create view subscription_events as
select g.id as group_id, d.pos, d.event_id, s.id as subscription_id
from deliveries as d join subscription_groups as g on g.gno = d.gno
cross join lateral unnest(d.subscription_ids) as s(id);

create view group_status as
select g.id as group_id, group_cursor(g.gno) as cursor, d.pos as last_pos, g.owner, g.lease_until, g.epoch,
  g.overrun_at, g.overrun_from, g.overrun_to,
  (select count(*) from subscriptions as s where s.gno = g.gno and s.expired_at is null) as subscriptions,
  -- Positions are of all groups, so this is how much there is to look at, and not how much is theirs.
  d.pos - group_cursor(g.gno) as behind
from subscription_groups as g cross join (select pos from dispatcher_state order by id desc limit 1) as d;

create view subscription_status as
select s.id, s.group_id, s.conditions_sql, s.params, s.expiry_interval, s.expired_at, greatest(a.last_active_at, (
    select max(c.last_active_at) from client_subscriptions as h join clients as c on c.id = h.client_id
    where h.subscription_id = s.id)) as last_active_at,
  c.parked_at, c.parked_pos, c.parked_event, c.parked_error
from subscriptions as s join conditions as c on c.id = s.cond_id
left join subscription_activity as a on a.subscription_id = s.id;

-- The role that conditions are run as: no login, no rights but to read what they are about. Roles belong to the
-- cluster; where we may not make one, and nobody has made it for us, conditions are run as the schema's owner, after
-- the same checks.
do $$
declare
  runner text := current_schema() || '_conditions';
begin
  begin
    execute format('create role %I nologin noinherit', runner);
  exception when duplicate_object or unique_violation then
    null;
  end;
  -- Who has made a role may not hand anything over to it until it has this; superusers may.
  if not (select rolsuper from pg_roles where rolname = current_user) then
    begin
      execute format('grant %I to current_user', runner);
    exception when insufficient_privilege then
      null;  -- somebody may have done it already
    end;
  end if;
  execute format('grant usage, create on schema %I to %I', current_schema(), runner);
  execute format('grant select on events, subscriptions, subscription_topics, conditions to %I', runner);
  execute format('alter function match_events(bigint[], int[], int[]) owner to %I', runner);
  execute format('revoke create on schema %I from %I', current_schema(), runner);
exception when insufficient_privilege then
  raise notice 'conditions are run as %: % (create the role % and grant it to %)',
    current_user, sqlerrm, runner, current_user;
end $$;
