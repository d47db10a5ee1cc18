package postgres

import (
	"sync"
	"time"

	"github.com/fencekit/fencekit/storage/postgres/internal/wire"
)

// deferrable is what a Store knows about the constraints and triggers of its database that can be
// deferred until COMMIT. A transaction looks at the catalog each minute, and if one of its own texts may
// have made one: behind its COMMIT and in the same message. Until its answer is there, others assume
// that there are some.
type deferrable struct {
	mu     sync.Mutex
	none   bool      // none were there
	looked time.Time // when a transaction last was sent that looks; zero: never, or it had no answer
	looks  int       // how many have looked
}

// deferrableEvery is how often the catalog is looked at.
const deferrableEvery = time.Minute

// expect reports whether a transaction, of which made says that it may have made something deferrable, has to
// expect deferred triggers; and the number of the look if it is to look, or 0.
func (d *deferrable) expect(made bool) (some bool, look int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if made || time.Since(d.looked) >= deferrableEvery {
		d.none, d.looked = false, time.Now()
		d.looks++
		look = d.looks
	}
	return !d.none, look
}

// deferrableSQL selects whether anything of the user's can be deferred. Fencekit's own trigger on
// pending_write needs no care: see check_writes in the migrations.
const deferrableSQL = "select 'deferrable', exists (select from pg_catalog.pg_constraint where condeferrable and conname operator(pg_catalog.<>) 'pending_write_sealed'); "

// note notes the answer to deferrableSQL of the look of that number; nil if it was not sent. Without one,
// the next transaction looks. A later look counts instead.
func (d *deferrable) note(look int, answer *wire.Answer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if look != d.looks {
		return
	}
	if answer != nil && answer.After == nil {
		for _, row := range answer.Rows {
			if len(row) == 2 && row[0] == "deferrable" {
				d.none = row[1] == "f"
				return
			}
		}
	}
	d.looked = time.Time{}
}
