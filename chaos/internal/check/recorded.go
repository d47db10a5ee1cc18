package check

// recorded checks I10: a transaction that changed the stock of a resource, or inserted an
// order of it, moved that resource's fence as well.
func recorded(v *view, t *tally) {
	writes := v.wal.writes()
	changes := 0
	for n, c := range v.Observed.Commits {
		for _, change := range c.Changes {
			if change.Table != tableStock && change.Table != tableOrders {
				continue
			}
			if change.Table == tableStock && change.Action == "insert" {
				continue // Prepare inserts the rows
			}
			changes++
			if writes[written{n, change.Row["resource"]}] == nil { // a deletion names no resource, and is never right
				t.violate("transaction %d: %s of %s (%s) without an entry of the same transaction", c.XID, change.Action, change.Table, change.Row["resource"])
			}
		}
	}
	t.look("%d changes of guarded rows", changes)
	if changes == 0 {
		t.lack("the write-ahead log shows no change of guarded rows")
	}
}
