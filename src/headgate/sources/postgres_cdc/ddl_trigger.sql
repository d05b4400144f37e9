-- Optional: tells headgate of DDL at once, also when no row follows it. Needs a superuser, once per database.
-- Remove it with: drop event trigger headgate_ddl; drop function headgate_ddl();
create or replace function headgate_ddl() returns event_trigger language plpgsql as $$
begin
  -- Part of the transaction that changes the table, so it stands in the stream where the change takes effect.
  if exists (select from pg_event_trigger_ddl_commands() where object_type in ('table', 'table column', 'type')) then
    perform pg_logical_emit_message(true, 'headgate.ddl', tg_tag);
  end if;
end
$$;
drop event trigger if exists headgate_ddl;
create event trigger headgate_ddl on ddl_command_end
  when tag in ('ALTER TABLE', 'CREATE TABLE', 'CREATE TABLE AS', 'ALTER TYPE') execute function headgate_ddl();
