-- Leases that no clock and no failover can confuse, and failures that only the reader of a group may note.
--
-- A lease is good from now until at most now() + lease. One that ends later was written before the clock stepped back,
-- and does not count: whoever holds the group renews it, and if nobody does, the next one need not wait for the clock.
-- A lease counts on the server it was given by: after a failover the same epoch would stand for another past. So the
-- upper bits of an epoch say whose it is, and the group gets a new one from each server.

lock table dispatcher_state in share row exclusive mode;  -- which a poll writes last

alter table clients add column handlers jsonb not null default '[]';  -- [[subscription, handler], ...]
alter table subscription_groups add column seeks int not null default 0;  -- how often it was moved

-- These are asked at every read, so they are in the language whose plans are kept.
create or replace function owner_of(given text) returns text
language plpgsql stable set search_path from current as $$
begin
  return coalesce(given, 'backend ' || pg_backend_pid());
end $$;

create or replace function group_cursor(of_gno int) returns bigint
language plpgsql stable set search_path from current as $$
begin
  return (select pos from group_cursors where gno = of_gno order by id desc limit 1);
end $$;

-- The past that this server has: its cluster, and the timeline, which every promotion and every restore changes.
create function server_history() returns text language plpgsql volatile set search_path from current as $$
begin
  return left(md5((select system_identifier from pg_control_system()) || '/' || case
    when pg_is_in_recovery() then (select c.timeline_id from pg_control_checkpoint() as c)
    -- Not of the last checkpoint, which comes some time after a promotion.
    else ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int end), 12);
end $$;

-- Without the setting, the default: a reader that gets nothing must not be the way to find out.
create function lease_interval() returns interval language plpgsql stable set search_path from current as $$
begin
  return coalesce((select value::interval from config where key = 'lease'), interval '15 seconds');
end $$;

-- The upper bits of the epochs that this server gives; never 0, which epochs of older versions have.
create function epoch_base() returns bigint language plpgsql volatile set search_path from current as $$
begin
  return (1 + (hashtextextended(server_history(), 0) & 4194302)) << 40;
end $$;

create function is_of(of_epoch bigint, base bigint) returns boolean
language sql immutable parallel safe as $$
  select of_epoch >> 40 in (0, base >> 40)
$$;

-- The epoch after this one; greater, but for the first that a server gives.
create function next_epoch(of_epoch bigint, base bigint) returns bigint
language sql immutable parallel safe as $$
  select base | ((of_epoch & 1099511627775) + 1)
$$;

create function is_leased(g subscription_groups, base bigint, lease interval) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  return coalesce(g.lease_until > clock_timestamp() and g.lease_until <= clock_timestamp() + lease
    and is_of(g.epoch, base), false);
end $$;

-- Takes the group or keeps it, as reading does; who takes long to handle what it has read calls this in between.
-- Null: another one has it. Writes only when half of the lease is over.
create or replace function hold_group_v1(of_group text, as_owner text) returns bigint
language plpgsql volatile set search_path from current set lock_timeout = '1s' as $$
declare
  g subscription_groups;
  lease interval := lease_interval();
  base bigint := epoch_base();
  is_held boolean;
begin
  perform check_group(of_group);
  select * into g from subscription_groups where id = of_group;
  is_held := is_leased(g, base, lease);
  if is_held and g.owner = as_owner and g.lease_until > clock_timestamp() + lease / 2 then
    return g.epoch;
  end if;
  if is_held and g.owner <> as_owner then
    return null;
  end if;
  begin
    -- Who has the row will not have it for long: it is a statement that acknowledges, or that was refused.
    select * into g from subscription_groups where id = of_group for update;
  exception when lock_not_available then
    return null;
  end;
  if not found or g.owner <> as_owner and is_leased(g, base, lease) then
    return null;
  end if;
  update subscription_groups as t set owner = as_owner, lease_until = clock_timestamp() + lease,
    epoch = case when g.owner = as_owner and is_of(t.epoch, base) then t.epoch else next_epoch(t.epoch, base) end
    where t.id = of_group returning t.epoch into g.epoch;
  return g.epoch;
end $$;

-- Only who holds a group, in this epoch and on this server, speaks for it. Until the end of the transaction, it does.
create function fence(of_group text, as_owner text, of_epoch bigint) returns subscription_groups
language plpgsql volatile set search_path from current as $$
declare
  g subscription_groups;
begin
  perform check_group(of_group);
  select * into g from subscription_groups where id = of_group for share;
  if not found then
    raise exception 'there is no group %', of_group using errcode = 'undefined_object';
  end if;
  -- Who reads without a lease gives neither name nor epoch, and speaks for a group that nobody has.
  if g.owner <> owner_of(as_owner) or g.epoch <> of_epoch or as_owner is not null and g.owner is null
    or g.owner is not null and not is_of(g.epoch, epoch_base())
  then
    raise exception 'the group % has another reader', of_group using errcode = 'HG001',
      hint = 'Whoever reads must say how far it is before its lease ends; what it read will be read again.';
  end if;
  return g;
end $$;

-- How far a group has come; forward only. Refused if the group has another reader by now, or was moved.
create or replace function set_group_cursor_v1(of_group text, new_pos bigint, release boolean, as_owner text,
  of_epoch bigint)
returns bigint language plpgsql volatile set search_path from current as $$
declare
  g subscription_groups;
  old_pos bigint;
  last_pos bigint;
begin
  perform from subscription_groups where id = of_group for update;
  g := fence(of_group, as_owner, of_epoch);
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

-- Moves a group anywhere, also back; whoever reads it has to begin again. The group is nobody's then, and not as one
-- that was released: a session that read before, and has no epoch to give, must not undo this.
create or replace function seek_v1(of_group text, to_pos bigint) returns void
language plpgsql volatile set search_path from current as $$
declare
  g subscription_groups;
begin
  perform check_group(of_group);
  update subscription_groups set owner = '(moved)', lease_until = null, epoch = next_epoch(epoch, epoch_base()),
    seeks = seeks + 1
    where id = of_group returning * into g;
  if not found then
    raise exception 'there is no group %', of_group using errcode = 'undefined_object';
  end if;
  insert into group_cursors (gno, pos)
    select g.gno, least(to_pos, pos) from dispatcher_state order by id desc limit 1;
  perform pg_notify(current_schema() || '_events', g.gno::text);
end $$;

-- As retry_v1 and bury_v1, for who reads the group: one that has lost it leaves the event to the next.
create function retry_v2(of_group text, as_owner text, of_epoch bigint, sid int, of_handler text, event_ids bigint[],
  attempt int, error text, delay_s double precision)
returns int language plpgsql volatile set search_path from current as $$
begin
  perform fence(of_group, as_owner, of_epoch);
  return retry_v1(sid, of_handler, event_ids, attempt, error, make_interval(secs => delay_s));
end $$;

create function bury_v2(of_group text, as_owner text, of_epoch bigint, sid int, of_handler text, event_ids bigint[],
  after_attempts int, error text)
returns setof bigint language plpgsql volatile set search_path from current as $$
begin
  perform fence(of_group, as_owner, of_epoch);
  return query select bury_v1(sid, of_handler, event_ids, after_attempts, error);
end $$;

-- Which handlers a client has, so that others know what they may leave to it.
create function declare_handlers_v1(of_client text, of_handlers jsonb) returns void
language sql volatile set search_path from current as $$
  update clients set handlers = of_handlers where id = of_client
$$;

-- A client lives if it has said so a moment ago. One that says so from the future died before the clock stepped back,
-- or will say so again soon.
create function is_alive(last_active_at timestamptz, within interval default '15 seconds') returns boolean
language sql volatile set search_path from current as $$
  select last_active_at between clock_timestamp() - within and clock_timestamp() + interval '1 second'
$$;

create function has_handler_elsewhere_v1(sid int, of_handler text, not_client text) returns boolean
language sql volatile set search_path from current as $$
  select exists (select from clients as c where c.id <> not_client and is_alive(c.last_active_at)
    and c.handlers @> jsonb_build_array(jsonb_build_array(sid, of_handler)))
$$;
