-- Positions belong to a past. A failover may lose the last transactions, and the new primary gives their positions to
-- other events: who remembers a position remembers whose it is, and learns here how far both pasts are the same.

create table histories (
  id bigint generated always as identity primary key,
  history text not null,
  from_pos bigint not null,    -- it has given the positions after this one
  at timestamptz not null default clock_timestamp()
);
insert into histories (history, from_pos) values (server_history(), 0);
grant select on histories to public;  -- numbers, which say nothing about events

-- Before the first position that a server gives. As the owner: whoever dispatches need not write here.
create function note_history() returns trigger language plpgsql
security definer set search_path from current as $$
declare
  here text := server_history();
begin
  if here is distinct from (select h.history from histories as h order by h.id desc limit 1) then
    insert into histories (history, from_pos)
      select here, coalesce((select d.pos from dispatcher_state as d order by d.id desc limit 1), 0);
    new.timeline := case when pg_is_in_recovery() then new.timeline
      else ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int end;
  end if;
  return new;
end $$;
revoke execute on function note_history() from public;
create trigger note_history before insert on dispatcher_state for each row execute function note_history();

-- Where a listener goes on that has seen everything up to a position of a past. `lost`: what it saw behind that is not
-- in this database, and other events have, or will have, those positions. Without a past, the position is believed if
-- it can be one of this server's.
create function resume_history_v1(of_history text, after_pos bigint, out history text, out pos bigint, out lost boolean)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  -- Before the state: what is dispatched after a promotion is noted with it.
  here text := server_history();
  last_pos bigint := (select d.pos from dispatcher_state as d order by d.id desc limit 1);
  shared bigint := last_pos;
begin
  if of_history <> here then
    -- Where the past that it knows ends for us. Of one that never gave a position here we know that it is none of
    -- those that this server has given.
    shared := least(last_pos, (
      select n.from_pos from histories as n
      where n.id > (select h.id from histories as h where h.history = of_history order by h.id desc limit 1)
        or n.history = here and not exists (select from histories as h where h.history = of_history)
      order by n.id limit 1));
  end if;
  history := here;
  pos := least(after_pos, shared);
  lost := coalesce(after_pos > shared, false);
end $$;

-- What comes next for listeners, which hold no lease. One row that has `lost_after` and nothing else: go on from there.
create function read_live_v1(of_group text, after_pos bigint, n int, of_history text)
returns table (id bigint, topic text, payload jsonb, metadata jsonb, at timestamptz, subscription_ids int[],
  next_cursor bigint, gone boolean, history text, lost_after bigint)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  r record;
begin
  select * into r from resume_history_v1(of_history, after_pos);
  if r.lost then
    return query select null::bigint, null::text, null::jsonb, null::jsonb, null::timestamptz, null::int[], r.pos,
      false, r.history, r.pos;
    return;
  end if;
  return query select e.id, e.topic, e.payload, e.metadata, e.at, e.subscription_ids, e.next_cursor, e.gap is not null,
    r.history, null::bigint
  from read_next_events_v1(of_group, after_pos, n, true, null) as e;
end $$;

-- How far listeners are, if they are of this past; it lets the log go of what is read and old.
create function note_live_v1(of_group text, at_pos bigint, of_history text) returns bigint
language plpgsql volatile set search_path from current as $$
begin
  if of_history is distinct from server_history() then
    return null;
  end if;
  return set_group_cursor_v1(of_group, at_pos, false, null, null);
end $$;

-- Streams of doors, likewise.
create function resume_stream_v2(of_group text, after_pos bigint, of_history text, out pos bigint, out history text,
  out lost boolean)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  r record;
begin
  select * into r from resume_history_v1(of_history, after_pos);
  pos := resume_stream_v1(of_group, r.pos);
  history := r.history;
  lost := r.lost;
end $$;

create function read_stream_v2(of_group text, after_pos bigint, n int, of_history text)
returns table (pos bigint, topic text, payload text, gap_from bigint, history text, lost_after bigint)
language plpgsql volatile set search_path from current as $$
#variable_conflict use_column
declare
  r record;
begin
  select * into r from resume_history_v1(of_history, after_pos);
  if r.lost then
    return query select r.pos, null::text, null::text, null::bigint, r.history, r.pos;
    return;
  end if;
  return query select s.pos, s.topic, s.payload, s.gap_from, r.history, null::bigint
    from read_stream_v1(of_group, after_pos, n) as s;
end $$;
