import unittest

import shop


class Test(unittest.TestCase):
    def test_price(self) -> None:
        self.assertEqual(shop.price(10), 100)
