-- A commit wakes the dispatcher, if there is one that wants to be woken.
--
-- Notifying has a price: commits that do it go one after the other. So whoever dispatches says until when it wants to be
-- told, and says nothing while there is so much to do that it looks again anyway. A sequence, because it is read without
-- a snapshot and written without a transaction: seconds since 1970.

create sequence wake_until as bigint minvalue 0 start 0 cache 1;
select setval('wake_until', 0);
grant select on sequence wake_until to public;  -- whoever publishes looks at it; it says nothing about events

-- It is called for every statement that publishes. So it has its caller's rights and names what it needs, which costs less
-- than a setting for each call; and its expression is one that is evaluated without a plan.
do $do$
begin
  execute format($create$
    create function wake_dispatcher() returns trigger language plpgsql as $$
    begin
      -- Whoever dispatches publishes what is due, and need not wake itself; also if that is nothing.
      if to_timestamp(pg_sequence_last_value(%1$L::regclass)) > clock_timestamp()
        and current_setting('headgate.dispatching', true) is distinct from 'on'
      then
        perform pg_notify(%2$L, '');
      end if;
      return null;
    end $$ $create$, format('%I.wake_until', current_schema()), current_schema() || '_published');
end $do$;
create trigger wake_dispatcher after insert on events for each statement execute function wake_dispatcher();

-- A client lives, and wants to be woken by those who publish, or does not any more. Who dies is told for as long as
-- others take it for alive.
create function heartbeat_v1(of_client text, wants_wake boolean) returns boolean
language plpgsql volatile security definer set search_path from current as $$
begin
  perform setval('wake_until',
    case when wants_wake then extract(epoch from clock_timestamp())::bigint + 15 else 0 end);
  return heartbeat_v1(of_client);
end $$;
