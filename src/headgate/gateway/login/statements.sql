-- The statements of store.py. Values are bound by name.

-- name: find
-- The keys of one user.
select mechanism, salt, iterations, stored_key, server_key from kafka.users where name = %(name)s;

-- name: everybody
-- All users, or those of these names.
select name, mechanism, salt, iterations, stored_key, server_key, changed_at, changed_by from kafka.users
where %(names)s::text[] is null or name = any(%(names)s) order by name, mechanism;

-- name: remaining
-- Those of these logins that there still are.
select name, mechanism from kafka.users
where (name, mechanism) in (select * from unnest(%(names)s::text[], %(mechanisms)s::text[]));

-- name: lock
-- What there is of these users, until the end of the transaction.
select name, mechanism from kafka.users where name = any(%(names)s) order by name, mechanism for update;

-- name: remove
delete from kafka.users where name = %(name)s and mechanism = any(%(mechanisms)s);

-- name: put
insert into kafka.users (name, mechanism, salt, iterations, stored_key, server_key, changed_by)
values (%(name)s, %(mechanism)s, %(salt)s, %(iterations)s, %(stored_key)s, %(server_key)s, %(by)s)
on conflict (name, mechanism) do update set salt = excluded.salt, iterations = excluded.iterations,
  stored_key = excluded.stored_key, server_key = excluded.server_key, changed_at = now(), changed_by = excluded.changed_by;
