-- Where the server is, how many of the publications there are, and a mark that differs whenever they may have got or
-- lost a table, or a table may look different. It costs a few tenths of a second with ten thousand tables.
select pg_catalog.pg_current_wal_insert_lsn()::text as lsn,
       (select count(*) from pg_catalog.pg_publication where pubname = any (%(publications)s)) as publication_count,
       pg_catalog.concat_ws(' ',
         (select sum(pg_catalog.hashtextextended(b.oid || ' ' || b.xmin, 0)) from pg_catalog.pg_publication b
          where b.pubname = any (%(publications)s)),
         (select sum(pg_catalog.hashtextextended(r.oid || ' ' || r.xmin, 0)) from pg_catalog.pg_publication_rel r),
         (select sum(pg_catalog.hashtextextended(s.oid || ' ' || s.xmin, 0)) from pg_catalog.pg_namespace s),
         (select sum(pg_catalog.hashtextextended(n.oid || ' ' || n.xmin, 0)) from pg_catalog.pg_publication_namespace n),
         (select sum(pg_catalog.hashtextextended(a.attrelid || ' ' || a.attnum || ' ' || a.xmin, 0))
          from pg_catalog.pg_attribute a where a.attrelid >= 16384 and a.attnum > 0),
         (select sum(pg_catalog.hashtextextended(i.indexrelid || ' ' || i.xmin, 0)) from pg_catalog.pg_index i
          where i.indrelid >= 16384),
         (select sum(pg_catalog.hashtextextended(c.oid || ' ' || c.xmin, 0)) from pg_catalog.pg_class c
          where c.relkind in ('r', 'p') and c.relpersistence = 'p' and c.oid >= 16384)) as mark;
