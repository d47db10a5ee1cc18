package check

// workload passes on what the workload's own check said.
func workload(v *view, t *tally) {
	t.look("its own check")
	if v.Workload != "" {
		t.violate("%s", v.Workload)
	}
}
