package boot

import "gvisor.dev/gvisor/pkg/sentry/pgalloc"

// takeImageBase takes the map of an image and the pages of its base out of the files of a restore,
// if they follow file i. It returns the index of the next file.
func takeImageBase(o *RestoreOpts, i int) (int, error) {
	if !o.HavePagesFile || len(o.Files) != i+2 {
		return i, nil
	}
	imageMap, err := o.ReleaseFD(i)
	if err != nil {
		return i, err
	}
	pages, err := o.ReleaseFD(i + 1)
	if err != nil {
		return i, err
	}
	return i + 2, pgalloc.SetImageBase(imageMap, pages)
}
