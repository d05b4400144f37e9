-- A recurring event that is registered again as it was, as every program does that registers when it starts, keeps its
-- next tick: one that is due at that moment and not taken yet would be lost otherwise.

create or replace function recur_v1(of_name text, of_cron text, of_topic text, of_payload jsonb, of_metadata jsonb,
  of_timezone text)
returns timestamptz language plpgsql volatile set search_path from current set jit = off as $$
declare
  r recurring;
begin
  perform next_tick(of_cron, clock_timestamp(), of_timezone);  -- says what is wrong with it
  perform pg_advisory_xact_lock('recurring'::regclass::oid::int, hashtext(of_name));
  -- In the order of who takes a tick, which then makes the next: each waits for the other, and none for both.
  perform from scheduled as s where s.recurring = of_name for update;
  update recurring as k set topic = of_topic, payload = of_payload, metadata = of_metadata
    where k.name = of_name and k.cron = of_cron and k.timezone = of_timezone;
  if found then
    update scheduled as s set topic = of_topic, payload = of_payload, metadata = of_metadata
      where s.recurring = of_name and (s.topic, s.payload, s.metadata) is distinct from
        (of_topic, of_payload, of_metadata);
  else
    perform cancel_recurring_v1(of_name);
    insert into recurring (name, cron, timezone, topic, payload, metadata)
      values (of_name, of_cron, of_timezone, of_topic, of_payload, of_metadata) returning * into r;
    perform schedule_tick(r, clock_timestamp());
  end if;
  return (select min(s.due_at) from scheduled as s where s.recurring = of_name);
end $$;

create or replace function cancel_recurring_v1(of_name text) returns boolean
language plpgsql volatile set search_path from current set jit = off as $$
declare
  was_there boolean;
begin
  perform from scheduled as s where s.recurring = of_name for update;
  delete from recurring where name = of_name;
  was_there := found;
  delete from scheduled where recurring = of_name;
  return was_there;
end $$;
