-- The statements of access. `%s` are their values, in the order of the text.

-- name: version
select version from kafka.access

-- name: acls
-- Those that were made first come first, which is no order that anything depends on, but the same every time.
select resource_type, pattern_type, resource_name, principal, host, operation, permission from kafka.acls
order by made_at, resource_type, resource_name, principal, operation, permission, pattern_type, host

-- name: add_acls
insert into kafka.acls (resource_type, pattern_type, resource_name, principal, host, operation, permission, made_by)
select *, %s from unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
on conflict do nothing

-- name: remove_acls
delete from kafka.acls as a
using unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
  as gone(resource_type, pattern_type, resource_name, principal, host, operation, permission)
where (a.resource_type, a.pattern_type, a.resource_name, a.principal, a.host, a.operation, a.permission)
  = (gone.resource_type, gone.pattern_type, gone.resource_name, gone.principal, gone.host, gone.operation,
    gone.permission)

-- name: rights_of
select kind, name, may_read, may_write from kafka.rights_of(%s, %s::text[], %s::text[])
