-- The statements of quotas. `%s` are their values, in the order of the text.

-- name: version
select version from kafka.access

-- name: all
select user_name, client_id, key, value from kafka.quotas order by user_name, client_id, key

-- name: remove
delete from kafka.quotas where (user_name, client_id) = (%s, %s) and key = any(%s::text[])

-- name: set
insert into kafka.quotas (user_name, client_id, key, value, made_by) values (%s, %s, %s, %s, %s)
on conflict (user_name, client_id, key) do update
set value = excluded.value, made_by = excluded.made_by, made_at = now()
