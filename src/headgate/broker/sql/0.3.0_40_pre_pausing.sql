-- A group that is paused has no reader until it is resumed. What comes for it meanwhile waits, as it does for a reader
-- that is away; max_lag goes on counting.

alter table subscription_groups add column paused_at timestamptz;

-- As before, and a paused group belongs to nobody.
create or replace function is_leased(g subscription_groups, base bigint, lease interval) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  return g.paused_at is not null
    or coalesce(g.lease_until > clock_timestamp() and g.lease_until <= clock_timestamp() + lease
      and is_of(g.epoch, base), false);
end $$;

-- Who reads the group at this moment finds out with its next word; what it had in hand comes again afterwards.
create function pause_group_v1(of_group text) returns boolean
language plpgsql volatile set search_path from current as $$
begin
  update subscription_groups set paused_at = coalesce(paused_at, clock_timestamp()), owner = '(paused)',
    lease_until = null, epoch = next_epoch(epoch, epoch_base()) where id = of_group and paused_at is null;
  if not found and not exists (select from subscription_groups where id = of_group) then
    raise exception 'there is no group %', of_group using errcode = 'undefined_object';
  end if;
  return found;
end $$;

create function resume_group_v1(of_group text) returns boolean
language plpgsql volatile set search_path from current as $$
declare
  number int;
begin
  update subscription_groups set paused_at = null, owner = '(resumed)', epoch = next_epoch(epoch, epoch_base())
    where id = of_group and paused_at is not null returning gno into number;
  if not found then
    if not exists (select from subscription_groups where id = of_group) then
      raise exception 'there is no group %', of_group using errcode = 'undefined_object';
    end if;
    return false;
  end if;
  perform pg_notify(current_schema() || '_events', number::text);
  return true;
end $$;

create function pause_group(group_id text) returns boolean language sql set search_path from current as $$
  select pause_group_v1(group_id)
$$;

create function resume_group(group_id text) returns boolean language sql set search_path from current as $$
  select resume_group_v1(group_id)
$$;
