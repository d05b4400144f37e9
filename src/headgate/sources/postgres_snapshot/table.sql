-- One relation, and how each of the publications publishes it. Parameters: schema, table, publications.
-- Before PostgreSQL 15 a publication has neither lists of columns nor filters of rows.
select c.oid::bigint as oid,
       c.relkind::text as kind,
       c.relreplident::text as identity,
       coalesce((select pg_catalog.array_agg(p.pubname::text order by p.pubname)
                 from pg_catalog.pg_publication p
                 where p.pubname = any (%(publications)s)), '{}') as publications,
       coalesce((select pg_catalog.array_agg(to_jsonb(t) order by t.pubname)
                 from pg_catalog.pg_publication_tables t
                 where t.schemaname = n.nspname and t.tablename = c.relname
                   and t.pubname = any (%(publications)s)), '{}') as published
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(table)s;
