// Package pause stops the calling process at an exact point, as a garbage
// collector, an operator or a hypervisor might at any point.
package pause
