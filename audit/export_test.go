package audit

// ReadPages makes pages so small that a short history has many.
func (d *Database) ReadPages(random func(n int) int) {
	d.limits = limits{resources: 1 + random(4), entries: 1 + int64(random(40)), rows: 1 + random(9), worth: int64(random(2)) << 20, together: 1 + random(4)}
}
