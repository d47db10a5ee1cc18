package audit

// Head is where the history of a resource ended at some time: the position of its last entry,
// and the hash of that entry. Since each hash covers the one before, a head stands for all
// entries up to it.
type Head struct {
	Resource string
	Seq      int64
	Hash     [32]byte
}
