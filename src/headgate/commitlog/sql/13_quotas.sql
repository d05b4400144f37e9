-- How much clients may do: one row for each limit of a user, of a client id, or of both together.
--
-- '' means that it is no part of the entity, and '*' everybody who has no limit of his own.
create table kafka.quotas (
  user_name text collate "C" not null default '' check (octet_length(user_name) <= 500),
  client_id text collate "C" not null default '' check (octet_length(client_id) <= 1000),
  key text not null check (key in ('producer_byte_rate', 'consumer_byte_rate', 'request_percentage')),
  value double precision not null check (value > 0 and value < 'infinity'),
  made_at timestamptz not null default now(),
  made_by text not null default session_user,
  primary key (user_name, client_id, key),
  check (user_name <> '' or client_id <> '')
);

-- Gateways look for quotas when they look for ACLs.
create trigger note after insert or update or delete or truncate on kafka.quotas
  for each statement execute function kafka.note_access();

comment on table kafka.quotas is
'Limits of clients in each gateway, in bytes a second and percent of its time: the same that kafka-configs shows';
