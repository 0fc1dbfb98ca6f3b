"""Clicks of a web shop, counted in windows and in total; its tests show the test kit."""
