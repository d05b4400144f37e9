-- No function of the broker is compiled. Some of them forbid sequential scans and sorts, which up to version 17 is done
-- by adding to their costs; with a packaged server's settings the planner then takes a statement of a millisecond for
-- one that is worth a tenth of a second of compilation.

do $$
declare
  one regprocedure;
begin
  for one in
    select p.oid from pg_proc as p join pg_language as l on l.oid = p.prolang
    where p.pronamespace = current_schema()::regnamespace and p.prokind = 'f'
      and (l.lanname = 'plpgsql' or p.proconfig::text like '%enable_%')
      and p.proname <> 'wake_dispatcher'  -- it plans nothing, and a setting would cost every statement that publishes
  loop
    execute format('alter function %s set jit = off', one);
  end loop;
end $$;
