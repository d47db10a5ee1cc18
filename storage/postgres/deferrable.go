package postgres

import (
	"sync/atomic"
	"time"

	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// deferrable is what a Store knows about the constraints and triggers of its database that can be
// deferred until COMMIT. A transaction looks at the catalog each minute, behind its COMMIT and in
// the same message. Until its answer is there, others assume that there are some.
type deferrable struct {
	none   atomic.Bool  // none were there
	looked atomic.Int64 // when a transaction last was sent that looks, since the start of the process; 0: never
}

var started = time.Now()

// deferrableEvery is how often the catalog is looked at.
const deferrableEvery = time.Minute

// assumed reports whether a transaction has to expect deferred triggers.
func (d *deferrable) assumed() bool { return !d.none.Load() || d.overdue() }

func (d *deferrable) overdue() bool {
	at := d.looked.Load()
	return at == 0 || time.Since(started)-time.Duration(at) >= deferrableEvery
}

// due reports whether the caller is the one to look now.
func (d *deferrable) due() bool {
	at := d.looked.Load()
	if !d.overdue() || !d.looked.CompareAndSwap(at, int64(time.Since(started))+1) {
		return false
	}
	d.none.Store(false)
	return true
}

// deferrableSQL selects whether anything of the user's can be deferred. Fencekit's own trigger on
// pending_write needs no care: see check_writes in the migrations.
const deferrableSQL = "select 'deferrable', exists (select from pg_catalog.pg_constraint where condeferrable and conname operator(pg_catalog.<>) 'pending_write_sealed'); "

// note notes the answer to deferrableSQL; nil if it was not sent. Without one, the next transaction looks.
func (d *deferrable) note(answer *wire.Answer) {
	if answer != nil && answer.After == nil {
		for _, row := range answer.Rows {
			if len(row) == 2 && row[0] == "deferrable" {
				d.none.Store(row[1] == "f")
				return
			}
		}
	}
	d.looked.Store(0)
}
