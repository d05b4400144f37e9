-- Users that Kafka's clients log in as (SASL), beside those of the configuration. Nobody but the schema's owner may read
-- it: with a password's keys one can guess it offline, and a server's key lets one pass for the gateway.

create table kafka.users (
  name text collate "C" not null check (octet_length(name) between 1 and 255 and name !~ '[[:cntrl:]]'),
  mechanism text not null check (mechanism in ('SCRAM-SHA-256', 'SCRAM-SHA-512')),
  salt bytea not null check (octet_length(salt) between 1 and 1024),
  iterations int not null check (iterations between 4096 and 16384),
  stored_key bytea not null,
  server_key bytea not null,
  changed_at timestamptz not null default now(),
  changed_by text not null default session_user,
  primary key (name, mechanism),
  check (octet_length(stored_key) = case mechanism when 'SCRAM-SHA-256' then 32 else 64 end),
  check (octet_length(server_key) = octet_length(stored_key))
);
revoke all on kafka.users from public;

-- Logins read the table. Gateways hear of its changes to end the connections of users who are gone.
create function kafka.note_users() returns trigger language plpgsql as $$
begin
  perform pg_catalog.pg_notify('kafka_users', '');
  return null;
end $$;
create trigger note after insert or update or delete or truncate on kafka.users
  for each statement execute function kafka.note_users();

comment on table kafka.users is
'Users of the gateway with the keys of their passwords: see headgate gateway users, or kafka-configs --entity-type users';
