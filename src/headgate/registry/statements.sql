-- name: lock
-- Writers queue here for a moment: what takes time was done before, and is looked at again behind the lock.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('headgate registry', 0))

-- name: subjects
-- Subjects that begin with a prefix; deleted ones if asked for.
select subject from registry.versions
where starts_with(subject, %(prefix)s) and (%(deleted)s or not is_deleted)
group by subject having not %(only_deleted)s or bool_and(is_deleted)
order by subject collate "C" offset %(offset)s limit %(limit)s

-- name: versions
-- All versions of a subject, oldest first.
select version, schema_id, is_deleted from registry.versions where subject = %(subject)s order by version

-- name: stamp
-- What a decision about a subject rests on: its versions, and what was set.
select
    (
        select coalesce(string_agg(version || ' ' || schema_id || ' ' || is_deleted, ',' order by version), '')
        from registry.versions where subject = %(subject)s
    ),
    (
        select coalesce(jsonb_agg(to_jsonb(s) order by subject), '[]') #>> '{}'
        from registry.settings as s where subject in ('', %(subject)s)
    )

-- name: schemas_by_id
-- Schemas with what they refer to.
select s.id, s.kind, s.body, coalesce(
    (
        select jsonb_agg(jsonb_build_object('name', r.name, 'subject', r.subject, 'version', r.version) order by position)
        from registry.schema_references as r where r.schema_id = s.id
    ),
    '[]'
)
from registry.schemas as s where s.id = any (%(ids)s)

-- name: schema_by_identity
select id from registry.schemas where identity = %(identity)s

-- name: next_id
update registry.counters set last_id = last_id + 1 returning last_id

-- name: note_id
-- An id that came from elsewhere: those that follow are greater.
update registry.counters set last_id = greatest(last_id, %(id)s)

-- name: last_id
select last_id from registry.counters

-- name: add_schema
insert into registry.schemas (id, kind, body, identity) values (%(id)s, %(kind)s, %(body)s, %(identity)s)

-- name: add_reference
insert into registry.schema_references (schema_id, position, name, subject, version)
values (%(schema_id)s, %(position)s, %(name)s, %(subject)s, %(version)s)

-- name: add_version
insert into registry.versions (subject, version, schema_id) values (%(subject)s, %(version)s, %(schema_id)s)
on conflict (subject, version) do update set schema_id = excluded.schema_id, is_deleted = false

-- name: set_deleted
update registry.versions set is_deleted = true where subject = %(subject)s and version = any (%(versions)s)

-- name: drop_versions
delete from registry.versions where subject = %(subject)s and version = any (%(versions)s)

-- name: drop_orphans
-- Schemas that no subject has any more.
delete from registry.schemas as s
where s.id = any (%(ids)s) and not exists (select from registry.versions as v where v.schema_id = s.id)

-- name: referenced_by
-- Schemas that refer to one of these versions; those of deleted versions count only if asked for.
select distinct r.version, r.schema_id
from registry.schema_references as r join registry.versions as v on v.schema_id = r.schema_id
where r.subject = %(subject)s and r.version = any (%(versions)s) and (%(deleted)s or not v.is_deleted)
order by r.schema_id

-- name: places
-- Where a schema is.
select subject, version from registry.versions
where schema_id = %(id)s and (%(deleted)s or not is_deleted)
order by subject collate "C", version offset %(offset)s limit %(limit)s

-- name: all_versions
-- Versions of all subjects that begin with a prefix, and how large their schemas are.
with found as (
    select *, max(version) over (partition by subject) as latest from registry.versions
    where starts_with(subject, %(prefix)s) and (%(deleted)s or not is_deleted)
), page as (
    select * from found where not %(latest_only)s or version = latest
    order by subject collate "C", version offset %(offset)s limit %(limit)s
)
select p.subject, p.version, p.schema_id, octet_length(s.body)
from page as p join registry.schemas as s on s.id = p.schema_id
order by p.subject collate "C", p.version

-- name: settings
-- What was set for all, and for this subject.
select subject, compatibility, mode from registry.settings where subject in ('', %(subject)s)

-- name: set_compatibility
insert into registry.settings (subject, compatibility) values (%(subject)s, %(value)s)
on conflict (subject) do update set compatibility = excluded.compatibility

-- name: set_mode
insert into registry.settings (subject, mode) values (%(subject)s, %(value)s)
on conflict (subject) do update set mode = excluded.mode

-- name: forget_settings
-- With a subject that is gone for good goes what was set for it.
delete from registry.settings where subject = %(subject)s

-- name: has_versions
select exists (select from registry.versions where %(subject)s in ('', subject) and not is_deleted)

-- name: counts
-- What there is, for those who watch.
select
    (select count(distinct subject) from registry.versions where not is_deleted),
    (select count(*) from registry.schemas),
    (select count(*) from registry.versions where not is_deleted)
