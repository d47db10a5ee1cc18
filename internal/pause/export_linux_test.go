package pause

import "golang.org/x/sys/unix"

// Held is how many bytes of the dump the pipe holds.
func (s *Stop) Held() (int, error) { return unix.IoctlGetInt(int(s.reader.Fd()), unix.TIOCINQ) }
