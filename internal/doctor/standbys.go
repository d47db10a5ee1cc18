package doctor

import (
	"context"
	"fmt"
	"strings"
)

// checkStandbys compares synchronous_standby_names with the standbys that are connected. It finds
// Patroni by the names of its sessions.
func checkStandbys(ctx context.Context, s *target) ([]Finding, error) {
	d := s.db
	var names string
	var patroni, hidden bool
	var all, synchronous []string
	err := d.row(ctx, `
		with standby as (
			select r.application_name, r.sync_state, r.state from pg_catalog.pg_stat_replication r
			  join pg_catalog.pg_stat_activity a on a.pid = r.pid
			 where a.datid is null -- what decodes changes logically is connected to a database
			   and coalesce(r.application_name, '') not in ('pg_basebackup', 'pg_receivewal') and coalesce(r.state, '') <> 'backup')
		select current_setting('synchronous_standby_names'),
		       exists (select from pg_catalog.pg_stat_activity where application_name ilike 'patroni%'),
		       coalesce((select bool_or(state is null) from standby), false),
		       array(select coalesce(application_name, '') from standby order by 1),
		       array(select application_name from standby where sync_state in ('sync', 'quorum') order by 1)`,
		nil, &names, &patroni, &hidden, &all, &synchronous)
	if err != nil {
		return nil, err
	}
	switch {
	case names == "" && patroni:
		return []Finding{d.found(patroniAsynchronous, fmt.Sprintf("a session of Patroni; synchronous_standby_names is empty; %s", firstOf(int64(len(all)), "standby", all)))}, nil
	case names == "" && len(all) > 0:
		return []Finding{d.found(standbyAsynchronous, firstOf(int64(len(all)), "standby", all)+"; synchronous_standby_names is empty", "names", literal(anyOf(all)))}, nil
	case names != "" && hidden:
		return []Finding{notChecked.found(d.Name, "can't examine standbys: this role doesn't see whether they are synchronous", "advice", "Connect as a role in pg_monitor.")}, nil
	case names != "" && len(synchronous) == 0:
		return []Finding{d.found(synchronousStandbyMissing, fmt.Sprintf("synchronous_standby_names is %s; connected are %s", names, firstOf(int64(len(all)), "standby", all)))}, nil
	}
	return nil, nil
}

// anyOf is the value of synchronous_standby_names that waits for one of the standbys.
func anyOf(names []string) string {
	var quoted []string
	for _, name := range names {
		if name == "" {
			return "ANY 1 (*)" // this role doesn't see their names
		}
		quoted = append(quoted, `"`+strings.ReplaceAll(name, `"`, `""`)+`"`)
	}
	return "ANY 1 (" + joined(quoted) + ")"
}
